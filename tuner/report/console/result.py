"""The recommendation: what to deploy, what it gains, and what users will feel."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tuner.profiles.evidence import CardsRow
from tuner.profiles.profile import Measured, UsersRow
from tuner.report.console.plan import SIMULATED
from tuner.report.headline import result_headline
from tuner.report.words import rate, seconds, span
from tuner.study.records import TuneResult


def print_result(result: TuneResult, console: Console, studies: Path | None = None) -> None:
    """Print the end of a study; `studies` is where it lies, if not where commands look by themselves."""
    console.print()
    for part in _parts(result, studies):
        console.print(part, soft_wrap=isinstance(part, str) and not console.is_terminal)


def _parts(result: TuneResult, studies: Path | None) -> Iterator[RenderableType]:
    if result.engine == "sim":
        yield Text(
            f"{SIMULATED}: predictions for vLLM on {result.gpu}, to be confirmed on the GPU", style="yellow"
        )
    yield Text(result_headline(result), style="bold")
    if result.closest:
        yield Text(result.closest)
    yield ""
    yield figures_table(result)
    if result.profile is not None and result.profile.by_cards:
        yield ""
        yield cards_table(result.profile.by_cards)
    if result.winner is not None:
        yield ""
        yield "Start it with:"
        yield Text(command_text(result.winner.command), style="cyan", overflow="ignore", no_wrap=True)
    if result.users_table:
        yield ""
        yield users_table(result.users_table, tuned=result.recommendation == "tuned")
    yield ""
    yield _tally(result)
    if result.winner is not None:
        words = ["kimi-tune", "export", result.study]
        if studies not in (None, Path("studies")):
            words += ["--studies", str(studies)]
        yield f"Export it: {shlex.join(words)} --format vllm|shell|json"


def figures_table(result: TuneResult) -> Table:
    """Default beside tuned, each as measured in the finals."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("requests/s", "output tokens/s", "P99", "users", "KV tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    rows: list[tuple[str, Measured]] = [("default", result.baseline)]
    if result.recommendation == "tuned" and result.winner is not None:
        rows.append(("tuned", result.winner))
    for label, measured in rows:
        table.add_row(
            label,
            rate(measured.throughput_rps),
            f"{measured.output_tps:,.0f}",
            seconds(measured.p99_s),
            f"{measured.users:,}" if measured.users else "-",
            f"{measured.kv_tokens:,}",
        )
    return table


def cards_table(rows: tuple[CardsRow, ...]) -> Table:
    """Two small servers or one large: the best of the search for each number of GPUs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("GPUs a server", "trials", "requests/s", "requests/s per GPU"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row.cards), str(row.trials), rate(row.throughput_rps), rate(row.per_card_rps))
    return table


def users_table(rows: tuple[UsersRow, ...], *, tuned: bool) -> Table:
    """Concurrent users against mean and P99 end-to-end latency."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("concurrent users", justify="right")
    table.add_column("default mean", justify="right")
    table.add_column("default P99", justify="right")
    if tuned:
        table.add_column("tuned mean", justify="right")
        table.add_column("tuned P99", justify="right")
    for row in rows:
        cells = [f"{row.users:,}", seconds(row.default_mean_s), seconds(row.default_p99_s)]
        table.add_row(*cells, *([seconds(row.tuned_mean_s), seconds(row.tuned_p99_s)] if tuned else []))
    return table


def command_text(command: tuple[str, ...]) -> str:
    """A launch as one line to copy, quoted for a shell."""
    return shlex.join(command)


_OUTCOMES = {
    "ok": "met the SLO",
    "slo": "did not",
    "crash": "could not start",
    "refused": "refused without a launch",
    "machine": "lost to the machine",
}


def _tally(result: TuneResult) -> str:
    counts = [f"{result.trials[key]} {word}" for key, word in _OUTCOMES.items() if result.trials.get(key)]
    kind = "virtual engine time" if result.engine == "sim" else "engine time"
    return f"{result.launches} launches, {span(result.engine_seconds)} of {kind}: " + ", ".join(counts)
