"""The application: its commands, and how every error becomes one line and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

import typer

from tuner.cli import studies, trace
from tuner.cli.check import check
from tuner.cli.dashboard import dashboard
from tuner.cli.doctor import doctor
from tuner.cli.explain import explain
from tuner.cli.export import export
from tuner.cli.faults import told_plainly
from tuner.cli.interrupt import GOES_ON
from tuner.cli.output import print_error
from tuner.cli.record import record
from tuner.cli.replay import replay
from tuner.cli.report import report
from tuner.cli.simulate import simulate
from tuner.cli.tune import tune
from tuner.cli.worker import worker
from tuner.errors import BadRequest, Exit, TuneError
from tuner.masking import mask

app = typer.Typer(
    name="kimi-tune",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.callback(invoke_without_command=True)(tune)
COMMANDS: dict[Callable[..., int], str] = {
    replay: "Measure a running server: does its P99 meet the SLO?",
    simulate: "Predict what a configuration does with a trace.",
    record: "Record a server's traffic as a trace, without its texts.",
    report: "Write what a study found: HTML, Markdown, CSV, JSON.",
    dashboard: "Look at a study in optuna-dashboard.",
    export: "Write the recommendation as a file that deploys.",
    check: "Say whether a profile still fits today's traffic and this machine.",
    explain: "Say why a vLLM server did not start, and how to mend it.",
    doctor: "Check what stands in the way of the real engine here.",
    worker: "Measure trials for a tuner on another host.",
}
"""The commands, each in a line."""
for command, line in COMMANDS.items():
    app.command(short_help=line)(command)
app.add_typer(studies.app, name="studies", short_help="List, show, delete and rename studies.")
app.add_typer(trace.app, name="trace")


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error is one line on stderr."""
    wants_json, verbose = "--json" in argv, "--verbose" in argv
    try:
        code = app(args=list(argv), prog_name="kimi-tune", standalone_mode=False)
        if code == Exit.INTERRUPTED:  # typer turns Ctrl-C into this code
            return _interrupted()
        return int(code) if isinstance(code, int) else Exit.OK
    except TuneError as error:
        if verbose:
            _print_traceback()
        return print_error(error, wants_json)
    except typer.TyperException as error:
        return print_error(_usage(error), wants_json)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except BrokenPipeError:
        # whoever read our output has gone: nothing is left to say
        sys.stdout = None
        return Exit.OK
    except Exception as error:
        if verbose:
            _print_traceback()
        known = told_plainly(error)
        if known is not None:
            return print_error(known, wants_json)
        what = f"a fault of kimi-tune itself: {type(error).__name__}: {error}"
        print_error(TuneError(what, "please report it with what --verbose shows"), wants_json)
        return Exit.OWN_FAULT


def _print_traceback() -> None:
    print(mask(traceback.format_exc()), file=sys.stderr, end="")


def _interrupted() -> int:
    print(GOES_ON, file=sys.stderr)
    return Exit.INTERRUPTED


def _usage(error: typer.TyperException) -> BadRequest:
    message = " ".join(error.format_message().split()).rstrip(".")
    return BadRequest(message, "see kimi-tune --help")


def main() -> None:
    """The `kimi-tune` command."""
    sys.exit(run(sys.argv[1:]))
