"""`kimi-tune doctor`: what stands in the way of the real engine here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tuner.cli.options import JsonOption, VerboseOption
from tuner.cli.output import console, print_json
from tuner.errors import Exit


def doctor(
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Check that this model can be served.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")
    ] = Path("studies"),
    vllm_python: Annotated[
        str | None, typer.Option("--vllm-python", metavar="PATH", help="The interpreter that has vLLM.")
    ] = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Check GPU, driver, vLLM, memory, disk and model; exit 5 where the real engine cannot run.

    Examples:

      kimi-tune doctor

      kimi-tune doctor --model meta-llama/Llama-3.1-8B --vllm-python /opt/vllm/bin/python
    """
    from tuner.engines.vllm.doctor import examine

    report = examine(model=model, folder=folder, python=vllm_python)
    if json:
        print_json(report.to_json())
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("check", "", "found"):
            table.add_column(name, overflow="fold")
        for check in report.checks:
            found = check.detail if not check.mend else f"{check.detail}\n→ {check.mend}"
            table.add_row(check.name, check.status.value, found)
        console(to_stderr=False).print(table)
    return Exit.OK if report.ok else Exit.ENGINE_UNAVAILABLE
