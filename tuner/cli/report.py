"""`kimi-tune report`: what a study found, as files to read and to pass on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import VerboseOption
from tuner.cli.output import console
from tuner.errors import BadRequest
from tuner.report.files import FORMATS, render_report, write_report
from tuner.study import find_study, read_study


def report(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="Name or folder; default: the latest one.")
    ] = None,
    format: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="|".join(FORMATS), help="Repeatable; default: html and md."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PATH", help="Folder, or - for stdout; default: the study's folder."),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")
    ] = Path("studies"),
    storage: Annotated[
        str | None,
        typer.Option("--storage", metavar="URL", help="Optuna storage that holds the study."),
    ] = None,
    verbose: VerboseOption = False,
) -> int:
    """Write what a study found: one HTML page that needs no network, Markdown, CSV or JSON of all trials.

    Works on finished, interrupted and running studies. A tune job writes it at its end by itself.

    Examples:

      kimi-tune report

      kimi-tune report STUDY --format csv --out - | column -s, -t | less -S
    """
    formats = list(dict.fromkeys(format or ("html", "md")))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise BadRequest(f"--format {unknown[0]}: unknown", f"choose one of {', '.join(FORMATS)}")
    kept = read_study(find_study(study, folder, storage))
    if out == "-":
        if len(formats) > 1:
            raise BadRequest("--out -: one format at a time", "add --format md, say")
        sys.stdout.write(render_report(kept, formats[0]))
        return 0
    for path in write_report(kept, formats, Path(out) if out else None):
        console(to_stderr=False).print(str(path), soft_wrap=True)
    return 0
