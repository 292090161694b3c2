"""An inspected trace on a screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tuner.report.words import NOTHING, percent, rate, span
from tuner.traces import Inspection

_BARS = " ▁▂▃▄▅▆▇█"


def print_inspection(found: Inspection, console: Console) -> None:
    """Print rate over time, lengths, sessions, prefix reuse, dispersion and coverage."""
    name = found.path or "the trace that ships"
    console.print(f"{name} ({found.format}, digest {found.digest})", style="bold", soft_wrap=True)
    console.print(
        f"{found.requests:,} requests in {span(found.duration_s)}"
        f" ({rate(found.rate_rps) if found.rate_rps else NOTHING} requests/s),"
        f" {found.sessions:,} sessions of {found.turns.get('mean', 1.0):.1f} turns"
    )
    console.print(f"rate over time  {sparkline([r for _, r in found.rate_over_time])}", soft_wrap=True)
    reuse = "not recorded" if found.prefix_reuse is None else percent(found.prefix_reuse)
    console.print(f"prefix reuse    {reuse} of the prompt tokens, under a cache without limit")
    console.print(f"burstiness      {_named(found.dispersion)}")
    console.print()
    console.print(_lengths(found))
    console.print()
    console.print(_coverage(found.coverage))
    for reason, count in found.left_out.items():
        console.print(f"left out        {count:,} {reason}", soft_wrap=True)
    for note in found.notes:
        console.print(f"note            {note}", soft_wrap=True)


def sparkline(values: list[float]) -> str:
    """Values as a row of bars, the highest full."""
    top = max(values, default=0.0)
    return "".join(_BARS[round(v / top * (len(_BARS) - 1))] for v in values) if top > 0 else ""


def _named(figures: Mapping[str, float | None]) -> str:
    return ", ".join(f"{n.replace('_', ' ')} {v:.1f}" for n, v in figures.items() if v is not None) or NOTHING


def _lengths(found: Inspection) -> Table:
    columns = {"input": found.input_tokens, "output": found.output_tokens, "both": found.total_tokens}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tokens")
    for figure in found.input_tokens:
        table.add_column(figure, justify="right")
    for name, figures in columns.items():
        table.add_row(name, *(f"{value:,.0f}" for value in figures.values()))
    return table


def _coverage(coverage: Mapping[int, float]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("max-model-len", justify="right")
    table.add_column("holds", justify="right")
    for length, share in coverage.items():
        table.add_row(f"{length:,}", percent(share))
    return table
