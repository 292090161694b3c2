"""What commands print: one JSON object on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import Any

import orjson
import typer
from rich.console import Console

from tuner import __version__
from tuner.errors import TuneError
from tuner.masking import mask

_PLAIN_COLUMNS = 100


def console(*, to_stderr: bool) -> Console:
    """Where people read: stdout, or stderr when stdout holds JSON; 100 plain columns without a terminal."""
    stream = sys.stderr if to_stderr else sys.stdout
    interactive = stream.isatty() and os.environ.get("TERM") != "dumb"
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=interactive,
        width=None if interactive else _PLAIN_COLUMNS,
    )


def show_version(wanted: bool) -> None:
    """`--version`: one line on stdout, and the end."""
    if wanted:
        typer.echo(f"kimi-tune {__version__}")
        raise typer.Exit


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
    sys.stdout.flush()


def print_error(error: TuneError, wants_json: bool) -> int:
    """One line on stderr, and an object on stdout where JSON was asked for; returns the exit code."""
    what, mend = mask(error.what), mask(error.mend)
    text = f"{what}: {mend}" if mend else what
    print(f"kimi-tune: {' '.join(text.split())}", file=sys.stderr)
    if wants_json:
        print_json({"error": {"exit": int(error.exit_code), "what": what, "mend": mend}})
    return int(error.exit_code)
