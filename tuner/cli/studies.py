"""`kimi-tune studies`: what has been tuned here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tuner.cli.options import JsonOption, VerboseOption
from tuner.cli.output import console, print_json
from tuner.report.words import gain, rate
from tuner.study import list_studies


def studies(
    folder: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")
    ] = Path("studies"),
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """List studies with GPU, model, SLO, state and recommendation."""
    found = list_studies(folder)
    if json:
        print_json([entry.to_json() for entry in found])
        return 0
    out = console(to_stderr=False)
    if not found:
        out.print(f"no studies in {folder}", soft_wrap=True)
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("study", "engine", "state", "trials", "requests/s", "gain"):
        table.add_column(name, justify="right" if name in ("trials", "requests/s", "gain") else "left")
    for entry in found:
        table.add_row(
            entry.name,
            entry.engine,
            entry.state,
            str(entry.trials),
            rate(entry.throughput_rps) if entry.throughput_rps else "-",
            gain(entry.gain),
        )
    out.print(table)
    return 0
