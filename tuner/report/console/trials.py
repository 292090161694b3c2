"""Trials as lines and as a table: load carried, P99 against the SLO, and what differs from the default."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from tuner.engines.base import Outcome
from tuner.report.words import changes, rate, seconds
from tuner.study.records import TrialRecord

BEST_ROWS = 5


def trial_line(record: TrialRecord, trials: int) -> str:
    """One finished trial in one plain line."""
    # asks that were refused or repeated have numbers too: those of later trials can be above `trials`
    number = record.number + 1
    head = f"trial {number}/{trials}" if number <= trials else f"trial {number}"
    return f"{head:12s} {_result(record)}  {changes(record.changed)}"


def _result(record: TrialRecord) -> str:
    if record.outcome is Outcome.OK:
        return f"{rate(record.value_rps)} requests/s at P99 {_against(record)}"
    if record.outcome is Outcome.SLO and record.lost_at_rps is not None:
        return f"misses the SLO at {rate(record.lost_at_rps)} requests/s, the best so far"
    if record.outcome is Outcome.SLO:
        return f"meets the SLO at no load (P99 {_against(record)})"
    kind = record.failure.value if record.failure else "failed"
    word = {Outcome.CRASH: "cannot start", Outcome.REFUSED: "refused", Outcome.MACHINE: "machine's fault"}
    return f"{word[record.outcome]} ({kind}): {record.cause}"


def _against(record: TrialRecord) -> str:
    limit = f" of {record.limit_s:g} s" if record.limit_s else ""
    return f"{seconds(record.p99_s)}{limit}"


def best_table(records: Iterable[TrialRecord], baseline: TrialRecord | None) -> Table:
    """The best configurations so far, the default among them."""
    found = sorted((r for r in records if r.outcome is Outcome.OK), key=lambda r: -r.value_rps)
    rows = found[:BEST_ROWS]
    if baseline is not None and baseline.outcome is Outcome.OK and baseline not in rows:
        rows = [*rows[: BEST_ROWS - 1], baseline]
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("requests/s", justify="right", no_wrap=True)
    table.add_column("P99 / SLO", justify="right", no_wrap=True)
    table.add_column("against the default", ratio=1)
    for record in rows:
        table.add_row(
            str(record.number + 1),
            rate(record.value_rps),
            f"{seconds(record.p99_s)} / {record.limit_s:g} s" if record.limit_s else seconds(record.p99_s),
            "vLLM's defaults" if record is baseline else changes(record.changed),
        )
    return table
