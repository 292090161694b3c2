"""The manual, made from `--help`: `python -m tuner.cli.manual docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import typer.main

from tuner.cli.app import app

_WIDTH = 100
_HEAD = """# kimi-tune: command line

Every command with its options, as `--help` shows them. Shell completion: `kimi-tune --install-completion`.
This file is made by `python -m tuner.cli.manual docs/cli.md`.
"""


def manual() -> str:
    """All commands in Markdown."""
    parts = [_HEAD]
    for name, text in pages():
        parts.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def pages() -> Iterator[tuple[str, str]]:
    """Each command's full name and its help."""
    root = typer.main.get_command(app)
    yield from _pages(root, _context(root, "kimi-tune", None))


def _pages(command: Any, context: typer.Context) -> Iterator[tuple[str, str]]:
    help_text = command.get_help(context)
    yield context.command_path, "\n".join(line.rstrip() for line in help_text.splitlines()).strip()
    for name, child in getattr(command, "commands", {}).items():
        yield from _pages(child, _context(child, name, context))


def _context(command: Any, name: str, parent: typer.Context | None) -> typer.Context:
    return typer.Context(
        command,
        info_name=name,
        parent=parent,
        max_content_width=_WIDTH,
        terminal_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual(), encoding="utf-8")
