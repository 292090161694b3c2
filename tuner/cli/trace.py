"""`kimi-tune trace`: look at recorded traffic, convert it, make some."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JsonOption, SeedOption, VerboseOption, window_of
from tuner.cli.output import console, print_json
from tuner.cli.setup import trace_of
from tuner.errors import BadRequest
from tuner.report.tracing import change_words, print_inspection
from tuner.spec import parse_duration_s
from tuner.traces import (
    SupportChat,
    compress_time,
    load_trace,
    plot_svg,
    spread_steps,
    synthesize,
    window,
    write_trace,
)
from tuner.traces import inspect as inspect_trace

SHIPPED_SEED = SupportChat().seed

app = typer.Typer(
    rich_markup_mode=None, help="Look at recorded traffic, convert it, make some.", no_args_is_help=True
)


@app.command("inspect", short_help="Show rate, lengths, sessions, prefix reuse, dispersion.")
def inspect(
    trace: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: the one that ships.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw it into a file.")
    ] = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Show rate, lengths, sessions, prefix reuse, dispersion, and what each max-model-len covers.

    Example:

      kimi-tune trace inspect trace.jsonl --plot trace.svg
    """
    if plot is not None and plot.suffix.lower() != ".svg":
        raise BadRequest(f"--plot {plot}: the plot is an SVG", f"name it like {plot.stem}.svg")
    loaded = trace_of(trace)
    found = inspect_trace(loaded)
    if plot is not None:
        try:
            plot.write_text(plot_svg(found), encoding="utf-8")
        except OSError as error:
            raise BadRequest(f"--plot {plot}: {error.strerror or error}", "name another file") from None
    if json:
        print_json(found.to_json())
    else:
        print_inspection(found, console(to_stderr=False))
    return 0


@app.command("convert", short_help="Write a trace in the project's own format.")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A trace in any format that is read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="JSONL to write, .gz compressed.")],
    spread: Annotated[
        bool,
        typer.Option("--spread-steps", help="Spread times that come in steps evenly over their step."),
    ] = False,
    part: Annotated[
        str | None, typer.Option("--window", metavar="A:B", help="Only this part of it, as fractions.")
    ] = None,
    speed: Annotated[
        float,
        typer.Option("--speed", min=0.001, help="Compress time: the trace so many times faster."),
    ] = 1.0,
    verbose: VerboseOption = False,
) -> int:
    """Write a trace in the project's own format. What is done to it is recorded in the first line, with the
    dispersion of its arrivals before and after.

    Examples:

      kimi-tune trace convert AzureLLMInferenceTrace_conv.csv trace.jsonl.gz

      kimi-tune trace convert day.csv rush-hour.jsonl --window 0.5:0.6 --speed 2
    """
    _refuse_what_is_there(target)
    chosen = window_of(part) if part is not None else None
    loaded = load_trace(source)
    if spread:
        loaded = spread_steps(loaded)
    if chosen is not None:
        loaded = window(loaded, *chosen)
    if speed != 1.0:
        loaded = compress_time(loaded, speed)
    write_trace(loaded, target)
    screen = console(to_stderr=True)
    screen.print(f"{len(loaded):,} requests written to {target}", soft_wrap=True)
    for change in loaded.source.changes:
        screen.print(f"changed: {change_words(change)}", soft_wrap=True)
    return 0


@app.command("synthesize", short_help="Make the traffic of a support chat.")
def make(
    target: Annotated[Path, typer.Argument(metavar="OUT", help="JSONL to write, .gz compressed.")],
    requests: Annotated[int, typer.Option("--requests", min=1, help="How many.")] = 2000,
    duration: Annotated[str, typer.Option("--duration", metavar="TIME", help="Over how long.")] = "20m",
    seed: SeedOption = SHIPPED_SEED,
    verbose: VerboseOption = False,
) -> int:
    """Make the traffic of a support chat: sessions of several turns behind a shared system prompt.

    Example:

      kimi-tune trace synthesize chat.jsonl --requests 5000 --duration 1h
    """
    _refuse_what_is_there(target)
    over_s = parse_duration_s(duration, what="--duration")
    made = synthesize(SupportChat(requests=requests, duration_s=over_s, seed=seed))
    write_trace(made, target)
    console(to_stderr=True).print(f"{len(made):,} requests written to {target}", soft_wrap=True)
    return 0


def _refuse_what_is_there(target: Path) -> None:
    if target.exists():
        raise BadRequest(f"{target}: is there already", "name another file")
