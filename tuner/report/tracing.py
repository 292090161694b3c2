"""An inspected trace on a screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tuner.report.words import NOTHING, percent, rate, span
from tuner.traces import Inspection

_BARS = " ▁▂▃▄▅▆▇█"
_DISPERSION = {
    "iod_1s": "index of dispersion in 1 s",
    "iod_60s": "in 60 s",
    "cv_gaps": "CV of gaps",
}
"""1 each for Poisson arrivals, more for bursts."""
_LEFT_OUT = frozenset({"change", "begins_s", "natural_rps", "layers"})
"""Of a recorded change, what only its figures show."""


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
    reuse = "not recorded"
    if found.prefix_reuse is not None:
        reuse = f"{percent(found.prefix_reuse)} of the prompt tokens, under a cache without limit"
    console.print(f"prefix reuse    {reuse}")
    console.print(f"dispersion      {dispersion_words(found.dispersion)}")
    console.print()
    console.print(_lengths(found))
    console.print()
    console.print(_coverage(found.coverage))
    for reason, count in found.left_out.items():
        console.print(f"left out        {count:,} {reason}", soft_wrap=True)
    for change in found.changes:
        console.print(f"changed         {change_words(change)}", soft_wrap=True)
    for note in found.notes:
        console.print(f"note            {note}", soft_wrap=True)


def sparkline(values: list[float]) -> str:
    """Values as a row of bars, the highest full."""
    top = max(values, default=0.0)
    return "".join(_BARS[round(v / top * (len(_BARS) - 1))] for v in values) if top > 0 else ""


def dispersion_words(figures: Mapping[str, float | None]) -> str:
    """How bursty arrivals are, in a line."""
    named = [
        f"{label} {figures[key]:.1f}" for key, label in _DISPERSION.items() if figures.get(key) is not None
    ]
    return ", ".join(named) or NOTHING


def change_words(change: Mapping[str, Any]) -> str:
    """What was done to a trace, in a line, with the dispersion before and after."""
    done = [str(change.get("change", "changed")).replace("-", " ")]
    for key, value in change.items():
        if key in _LEFT_OUT or isinstance(value, Mapping | list | tuple):
            continue
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        done.append(f"{key.replace('_', ' ')} {shown}")
    words = ", ".join(done)
    before, after = change.get("dispersion_before"), change.get("dispersion_after")
    if before is None or after is None:
        return words
    return f"{words}; before: {dispersion_words(before)}; after: {dispersion_words(after)}"


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
