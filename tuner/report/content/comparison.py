"""Default against tuned: loads, latencies, users, cost, curves; what users feel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.profiles.evidence import CardsRow
from tuner.profiles.profile import Measured
from tuner.report.content.money import per_million_tokens, per_thousand_requests
from tuner.report.content.pictures import load_curves
from tuner.report.content.view import View, p99_of
from tuner.report.page.blocks import Block, Column, Mono, Picture, Section, Table, Text, Words
from tuner.report.words import NOTHING, changes, flag_value, gain, interval, latency, rate, seconds, span

_LATENCIES = ("e2e", "ttft", "tpot")


def comparison_section(view: View) -> Section | None:
    """The table of the finals; of an unfinished study, default and best so far."""
    blocks: list[Block] = []
    if view.result is not None and (view.result.winner is not None or view.study.finals):
        blocks.append(_finals_table(view, view.result.baseline, view.tuned))
        if view.tuned is not None:
            blocks.append(_flags_table(view.tuned, view.result.baseline))
        if view.profile is not None and view.profile.by_cards:
            blocks.append(_cards_table(view.profile.by_cards))
    elif view.study.baseline is not None:
        blocks.append(_search_table(view))
    if not blocks:
        return None
    title = "Default against tuned" if view.tuned or view.result is None else "The default"
    return Section("comparison", title, tuple(blocks))


def curves_section(view: View) -> Section | None:
    """Load against P99."""
    charts = load_curves(view)
    if not charts:
        return None
    blocks: list[Block] = [
        Text("How latency grows with the load. The highest load below the dashed line is what counts.")
    ]
    for chart in charts:
        blocks.append(Picture(chart))
    return Section("curves", "Load against P99", tuple(blocks))


def _finals_table(view: View, default: Measured, tuned: Measured | None) -> Table:
    sides = [default] if tuned is None else [default, tuned]
    replays = [view.default_replays, view.tuned_replays]
    at = [
        view.replay_at(replays[i], float(m.users) if view.by_users else m.throughput_rps)
        for i, m in enumerate(sides)
    ]
    rows: list[tuple[str, list[str], str]] = []

    def row(name: str, cells: list[str], change: str = "") -> None:
        if any(cell not in ("", NOTHING) for cell in cells):
            rows.append((name, cells, change))

    row("load within the SLO, requests/s", [rate(m.throughput_rps) for m in sides], _change(
        *(m.throughput_rps for m in sides)))  # fmt: skip
    if any(m.cards > 1 for m in sides):
        row("the same for each GPU", [rate(m.throughput_rps / m.cards) for m in sides], _change(
            *(m.throughput_rps / m.cards for m in sides)))  # fmt: skip
    users = [f"{m.users:,}" if m.users else NOTHING for m in sides]
    row("concurrent users", users, _change(*(float(m.users) for m in sides if m.users)))
    for metric in _LATENCIES:
        values = [p99_of(r, metric) for r in at]
        if metric == "e2e" and not any(values):
            values = [m.p99_s for m in sides]
        row(f"P99 of {metric.upper()} at that load", [latency(v) for v in values])
        bounds = [(r.get(f"{metric}_s") or {}).get("p99_interval") for r in at]
        if metric in view.study.limits and any(bounds):
            cells = [interval(*b) if b else NOTHING for b in bounds]
            row(f"its 95% interval ({metric.upper()})", cells)
    row("mean of E2E", [seconds(m.mean_s) for m in sides])
    row("output tokens/s", [f"{m.output_tps:,.0f}" for m in sides], _change(*(m.output_tps for m in sides)))
    row("goodput, requests/s", [_goodput(r) for r in at])
    row("cost of 1,000 requests", [per_thousand_requests(view, m) for m in sides])
    row("cost of 1M output tokens", [per_million_tokens(view, m) for m in sides])
    row("KV cache, tokens", [f"{m.kv_tokens:,}" for m in sides])
    row("start-up", [span(m.startup_s) if m.startup_s else NOTHING for m in sides])
    names = ["vLLM's defaults"] if tuned is None else ["vLLM's defaults", "tuned", "change"]
    whole: list[tuple[Words, ...]] = [
        (name, *values, *([change] if tuned is not None else [])) for name, values, change in rows
    ]
    return Table(
        "As measured in the finals" + (", by the simulator" if view.study.simulated else ""),
        (Column("", False), *(Column(name) for name in names)),
        tuple(whole),
        frozenset({0}),
    )


def _change(*values: float) -> str:
    if len(values) < 2 or values[0] <= 0.0:
        return ""
    return gain(values[1] / values[0])


def _goodput(replay: Any) -> str:
    value = replay.get("goodput_rps")
    return rate(value) if isinstance(value, int | float) else NOTHING


def _cards_table(rows: tuple[CardsRow, ...]) -> Table:
    cells: tuple[tuple[Words, ...], ...] = tuple(
        (f"{r.cards}", f"{r.trials}", rate(r.throughput_rps), rate(r.per_card_rps), Mono(changes(r.flags)))
        for r in rows
    )
    columns = ("GPUs each", "trials", "load, requests/s", "for each GPU, requests/s", "flags")
    heads = tuple(Column(name, name != "flags") for name in columns)
    return Table("Small servers or large ones: the best of the search by GPUs", heads, cells)


def _flags_table(tuned: Measured, default: Measured) -> Table:
    rows = tuple(
        (Mono(flag), _shown(default.effective.get(flag)), Mono(flag_value(value)))
        for flag, value in sorted(tuned.flags.items())
    )
    columns = (Column("flag", False), Column("vLLM's default here"), Column("recommended"))
    return Table("The flags to set", columns, rows)


def _shown(value: Any) -> Mono | str:
    return NOTHING if value is None else Mono(flag_value(value))


def _search_table(view: View) -> Table:
    study = view.study
    baseline, best = study.baseline, study.best
    assert baseline is not None
    trials = [("vLLM's defaults", baseline)]
    if best is not None and best is not baseline:
        trials.append((f"best so far (trial {best.number + 1})", best))
    rows: list[tuple[str, ...]] = [
        (f"load within the SLO, {study.unit}", *(rate(t.value or 0.0) for _, t in trials)),
        *_trial_latencies([t for _, t in trials]),
        ("differs in", *(changes(t.changed) for _, t in trials)),
    ]
    return Table(
        "As measured in the search",
        (Column("", False), *(Column(name, False) for name, _ in trials)),
        tuple(rows),
        frozenset({0}),
    )


def _trial_latencies(trials: list[Any]) -> Iterator[tuple[str, ...]]:
    for metric in _LATENCIES:
        cells = [latency(t.attrs.get(f"{metric}_p99_s")) for t in trials]
        if any(cell != NOTHING for cell in cells):
            yield (f"P99 of {metric.upper()} at that load", *cells)


def users_section(view: View) -> Section | None:
    """Concurrent users against what they feel."""
    rows = view.result.users_table if view.result is not None else ()
    if not rows:
        return None
    tuned = view.tuned is not None
    columns = [Column("concurrent users", True), Column("default, mean"), Column("default, P99")]
    if tuned:
        columns += [Column("tuned, mean"), Column("tuned, P99")]
    cells = []
    for r in rows:
        values = [f"{r.users:,}", seconds(r.default_mean_s), seconds(r.default_p99_s)]
        cells.append((*values, *((seconds(r.tuned_mean_s), seconds(r.tuned_p99_s)) if tuned else ())))
    text = "Users who each send their next request as soon as the last was answered, without think time."
    return Section(
        "users",
        "What users feel",
        (Text(text), Table("End-to-end latency by concurrent users", tuple(columns), tuple(cells))),
    )
