"""The trials: by outcome, what failed and why, each of them."""

from __future__ import annotations

from collections import defaultdict

from tuner.report.content.pictures import search_progress
from tuner.report.content.view import View
from tuner.report.page.blocks import Block, Column, Fold, Mono, Picture, Section, Table, Text, Words
from tuner.report.words import NOTHING, changes, latency, rate, span
from tuner.study.kept import KeptTrial

OUTCOMES = {
    "ok": ("met the SLO", "the value is the highest load that passed"),
    "slo": ("missed the SLO", "lost to the best so far at its load, or met the SLO at no load"),
    "crash": (
        "could not start",
        "or died under load; never scored as a throughput of 0",
    ),
    "refused": (
        "refused without a launch",
        "arithmetic or an earlier log says that it cannot start",
    ),
    "machine": ("lost to the machine", "a fault that says nothing about the configuration; asked again"),
    "interrupted": ("interrupted", "asked again when the study goes on"),
    "running": ("running", "now"),
    "waiting": ("waiting", "queued"),
}
"""Outcomes in words, and what they mean."""


def trials_section(view: View) -> Section:
    """How the search went."""
    blocks: list[Block] = [_by_outcome(view)]
    if (chart := search_progress(view)) is not None:
        blocks.append(Picture(chart))
    if (failures := _failures(view)) is not None:
        blocks.append(failures)
    trials = view.study.own
    if trials:
        blocks.append(Fold(f"All {len(trials)} trials", (_all(view),)))
    return Section("trials", "The trials", tuple(blocks))


def invalid_section(view: View) -> Section | None:
    """The replays that prove nothing, and why."""
    found = view.invalid()
    if not found:
        return None
    unit = "users" if view.by_users else "requests/s"
    rows = tuple(
        (name, rate(float(r.get("load", 0.0))), str(r.get("invalid_reason") or r.get("reason") or ""))
        for name, r in found
    )
    text = (
        "The measuring client, or another workload than the trace's, may have set these figures. A capacity "
        "below such a load is not the server's: measure from a machine with more cores to go further."
    )
    columns = (Column("launch", False), Column(f"load, {unit}"), Column("why", False))
    return Section(
        "invalid",
        "Replays that prove nothing",
        (Text(text, "warn"), Table("INVALID replays", columns, rows)),
    )


def _by_outcome(view: View) -> Table:
    by: dict[str, list[KeptTrial]] = defaultdict(list)
    for trial in view.study.own:
        by[trial.outcome].append(trial)
    rows = tuple(
        (name, str(len(by[key])), span(sum(float(t.attrs.get("engine_s", 0.0)) for t in by[key])), meaning)
        for key, (name, meaning) in OUTCOMES.items()
        if by[key]
    )
    columns = (Column("outcome", False), Column("trials"), Column("engine time"), Column("meaning", False))
    return Table("Trials by outcome", columns, rows)


def _failures(view: View) -> Table | None:
    groups: dict[tuple[str, str], list[KeptTrial]] = defaultdict(list)
    for trial in view.study.own:
        if trial.outcome in ("crash", "refused") and trial.cause:
            kind = str(trial.attrs.get("failure") or trial.attrs.get("rule") or trial.outcome)
            groups[kind, trial.cause].append(trial)
    if not groups:
        return None
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows: tuple[tuple[Words, ...], ...] = tuple(
        (kind.replace("_", " "), str(len(trials)), cause, str(trials[0].attrs.get("mend") or NOTHING))
        for (kind, cause), trials in ordered[:30]
    )
    columns = (Column("kind", False), Column("trials"), Column("cause", False), Column("mend", False))
    return Table("What could not start, and why", columns, rows)


def _all(view: View) -> Table:
    study = view.study
    rows: list[tuple[Words, ...]] = []
    strong = set()
    for trial in study.own:
        if trial is study.best:
            strong.add(len(rows))
        name = OUTCOMES.get(trial.outcome, (trial.outcome, ""))[0]
        told = "vLLM's defaults" if trial is study.baseline else Mono(changes(trial.changed))
        rows.append(
            (
                str(trial.number + 1),
                name,
                _load(trial),
                latency(trial.attrs.get("p99_s")),
                latency(trial.attrs.get("ttft_p99_s")),
                latency(trial.attrs.get("tpot_p99_s")),
                span(float(trial.attrs.get("engine_s", 0.0))),
                [told, f": {trial.cause}"] if trial.cause else told,
            )
        )
    columns = ("trial", "outcome", f"load, {study.unit}", "P99", "TTFT", "TPOT", "time", "differs in")
    return Table(
        "All trials; P99 is of the metric nearest to its limit",
        tuple(Column(c, c not in ("outcome", "differs in")) for c in columns),
        tuple(rows),
        frozenset(strong),
    )


def _load(trial: KeptTrial) -> str:
    """What a trial carried; of one that lost to the best so far only that it is less."""
    if (lost := trial.attrs.get("lost_at_rps")) is not None:
        return f"< {rate(float(lost))}"
    return rate(trial.value) if trial.outcome in ("ok", "slo") and trial.value is not None else NOTHING
