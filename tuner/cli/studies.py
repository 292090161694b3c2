"""`kimi-tune studies`: what has been tuned here; show, delete, rename."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tuner.cli.options import JsonOption, VerboseOption
from tuner.cli.output import console, print_json
from tuner.errors import BadRequest
from tuner.report.console import print_result
from tuner.report.content.page import study_page
from tuner.report.files import render_report
from tuner.report.page.markdown import blocks_markdown
from tuner.report.results import result_object
from tuner.report.words import gain, limits_short, rate
from tuner.study import StudyEntry, delete_study, find_study, list_studies, read_study, rename_study

FolderOption = Annotated[Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")]
StorageOption = Annotated[
    str | None, typer.Option("--storage", metavar="URL", help="Optuna storage that holds the study.")
]
NameArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Name or folder.")]

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@app.callback()
def studies(
    ctx: typer.Context,
    folder: FolderOption = Path("studies"),
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """List studies: model, GPU, SLO, the best load within it, state and recommendation.

    Examples:

      kimi-tune studies

      kimi-tune studies show STUDY

      kimi-tune studies rename STUDY chat-a100
    """
    if ctx.invoked_subcommand is not None:
        return 0
    found = list_studies(folder)
    if json:
        print_json([entry.to_json() for entry in found])
        return 0
    out = console(to_stderr=False)
    if not found:
        out.print(f"no studies in {folder}", soft_wrap=True)
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("study", "model, GPU, SLO", "best within it", "gain", "state"):
        table.add_column(name, overflow="fold", justify="right" if name == "gain" else "left")
    for entry in found:
        table.add_row(*map(Text, _cells(entry)))
    out.print(table)
    return 0


def _cells(entry: StudyEntry) -> tuple[str, ...]:
    kind = " (simulated)" if entry.engine == "sim" else ""
    best = f"{rate(entry.best)} {entry.unit}" if entry.best else "-"
    if entry.throughput_rps:
        best = f"{rate(entry.throughput_rps)} requests/s"
    state = f"{entry.state}, {entry.trials} trials"
    if entry.recommendation:
        state = {"tuned": "finished", "default": "keep the defaults", "none": "nothing meets the SLO"}[
            entry.recommendation
        ]
    return (
        entry.name,
        f"{entry.model}, {entry.gpu}, {limits_short(entry.slo)}{kind}",
        best,
        gain(entry.gain),
        state,
    )


@app.command("show")
def show(
    study: NameArgument,
    folder: FolderOption = Path("studies"),
    storage: StorageOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Show one study: its recommendation, or how far it came. --verbose shows the whole report.

    Examples:

      kimi-tune studies show STUDY

      kimi-tune studies show STUDY --verbose | less
    """
    kept = read_study(find_study(study, folder, storage))
    out = console(to_stderr=False)
    if json:
        if kept.result is None:
            print_json({"study": kept.name, "state": kept.state, "trials": len(kept.own)})
        else:
            print_json({**result_object(kept.result), "state": kept.state})
    elif verbose:
        sys.stdout.write(render_report(kept, "md"))
    elif kept.result is not None:
        print_result(kept.result, out, folder)
    else:
        page = study_page(kept)
        out.print(Text(page.headline), style="bold", soft_wrap=True)
        out.print(Text(page.kicker), soft_wrap=True)
        out.print(Text(blocks_markdown(page.summary)), soft_wrap=True)
    return 0


@app.command("delete")
def delete(
    study: NameArgument,
    folder: FolderOption = Path("studies"),
    storage: StorageOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    verbose: VerboseOption = False,
) -> int:
    """Delete one study with its logs, profile and report. A running study is refused.

    Example:

      kimi-tune studies delete STUDY --yes
    """
    place = find_study(study, folder, storage)
    kept = read_study(place)
    if not yes:
        if not sys.stdin.isatty():
            raise BadRequest(f"study {place.name}: deleting it needs a yes", "add --yes")
        typer.confirm(f"Delete {place.name} ({len(kept.own)} trials, {place.folder})?", abort=True, err=True)
    delete_study(place)
    console(to_stderr=True).print(f"deleted {place.name}", soft_wrap=True)
    return 0


@app.command("rename")
def rename(
    study: NameArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, dots, dashes.")],
    folder: FolderOption = Path("studies"),
    storage: StorageOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Give one study another name. A running study is refused.

    Go on with it under its new name by --study NAME.

    Example:

      kimi-tune studies rename a100-80g-kimi-k2.6-awq-ce5daadf chat-a100
    """
    place = rename_study(find_study(study, folder, storage), name)
    console(to_stderr=True).print(f"{study} is now {place.name}", soft_wrap=True)
    return 0
