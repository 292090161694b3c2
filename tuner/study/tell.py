"""What Optuna is told of a trial: one value, two constraints, and what explains them.

Both constraints, `crash` and `p99`, are set on every complete trial, in the alphabetical order in which
SQLite gives them back: a Gaussian process needs the same keys in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tuner.engines.base import Outcome
from tuner.measure import STEP, Judgement, finite, nearest_rank
from tuner.replay.records import Replay
from tuner.spec import Slo
from tuner.study.attrs import attrs_of, packed
from tuner.study.history import History
from tuner.study.trial import Run

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

STARTS = -1.0
CRASHES = 1.0
LOST = -0.001
"""`p99` of a trial that lost to the incumbent: it may well meet the SLO at a lower load."""
GUARD_MARGIN = 0.05
"""Added to log(P99/SLO), so that the guard of 0.95 lies at about 0."""
CLIP = 3.0
_LEAST_FAIL = 0.001


@dataclass(frozen=True, slots=True)
class Told:
    """What is told: `crash` and `p99` are constraints (feasible at 0 and below)."""

    outcome: Outcome
    value: float
    crash: float
    p99: float
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def constraints(self) -> dict[str, float]:
        """The constraints in the order of their names."""
        return {"crash": self.crash, "p99": self.p99}


def told_run(run: Run, slo: Slo, history: History, estimate: float | None = None) -> Told:
    """What a launch is told as; `estimate` is what a calibrated simulator thinks that it carries."""
    if run.capacity is None:
        assert run.failure is not None
        failed = {"failure": run.failure.kind.value, "cause": run.failure.cause, "mend": run.failure.mend}
        return told_crash(Outcome.CRASH, history, {**failed, **_server(run)})
    capacity = run.capacity
    attrs: dict[str, Any] = {**_figures(capacity.at, slo), **_server(run), "replays": len(capacity.probes)}
    if capacity.lost:
        load = capacity.probes[0].rps
        below = load / STEP
        value = min(estimate, below) if estimate else min(load * share_within(capacity.at, slo), below)
        return Told(Outcome.SLO, value, STARTS, LOST, {**attrs, "censored": True, "lost_at_rps": load})
    if capacity.rps <= 0.0:
        return Told(Outcome.SLO, 0.0, STARTS, max(_clipped(capacity.at.margin), _LEAST_FAIL), attrs)
    low, high = capacity.bracket_rps
    attrs |= {"capacity_rps": capacity.rps, "bracket_rps": [low, finite(high)]}
    return Told(Outcome.OK, capacity.rps, STARTS, min(_clipped(capacity.at.margin), 0.0), attrs)


def estimated(told: Told, estimate: float | None) -> Told:
    """A trial that lost elsewhere, with what a calibrated simulator here thinks that it carries."""
    if not estimate or not told.attrs.get("censored"):
        return told
    return replace(told, value=min(estimate, told.attrs["lost_at_rps"] / STEP))


def told_crash(outcome: Outcome, history: History, attrs: dict[str, Any]) -> Told:
    """What a configuration that cannot start is told as: infeasible, never a throughput of its own."""
    return Told(outcome, history.lowest_value(), CRASHES, history.worst_p99(CLIP), attrs)


def told_again(before: FrozenTrial) -> Told:
    """What a configuration that was tried already is told as: its record."""
    attrs = {k: v for k, v in attrs_of(before).items() if k not in _OF_ONE_TRIAL}
    return Told(
        Outcome(before.user_attrs["outcome"]),
        float(before.value or 0.0),
        before.constraints["crash"],
        before.constraints["p99"],
        {**attrs, "repeat_of": before.number},
    )


_OF_ONE_TRIAL = {
    "lesson",
    "origin",
    "seed",
    "launched",
    "launches",
    "engine_s",
    "same_as",
    "outcome",
    "again_of",
}


def tell(study: Study, trial: Trial, told: Told, **more: Any) -> FrozenTrial:
    """Finish a running trial; `more` are attributes beyond those of what is told."""
    for name, value in told.constraints.items():
        trial.set_constraint(name, value)
    for name, value in packed({"outcome": told.outcome.value, **told.attrs, **more}).items():
        trial.set_user_attr(name, value)
    return study.tell(trial, told.value)


def share_within(judgement: Judgement, slo: Slo) -> float:
    """Share within the SLO of the requests whose fate a replay, perhaps stopped early, has decided."""
    replay = judgement.replay
    if not replay.stopped:
        return judgement.attainment
    within = round(judgement.attainment * len(replay))
    over = max(_ended_over(replay, within), len(replay) // 100 + 1)
    return within / (within + over)


def _ended_over(replay: Replay, within: int) -> int:
    from tuner.replay.records import Status

    return int((replay.status != Status.UNFINISHED).sum()) - within


def _clipped(margin: float) -> float:
    return min(max(margin + GUARD_MARGIN, -CLIP), CLIP)


def _figures(judgement: Judgement, slo: Slo) -> dict[str, Any]:
    low, high = judgement.interval_s
    limit = slo.limits().get(judgement.metric)
    replay = judgement.replay
    columns = {"e2e": replay.e2e_s(), "ttft": replay.ttft_s(), "tpot": replay.tpot_s()}
    return {
        "metric": judgement.metric,
        "p99_s": finite(judgement.p99_s),
        "p99_interval_s": [finite(low), finite(high)],
        "limit_s": limit,
        "slo_margin": judgement.margin if math.isfinite(judgement.margin) else CLIP,
        "attainment": judgement.attainment,
        "p99_at_rps": judgement.offered_rps,
        "verdict": judgement.verdict.value,
        **{f"{name}_p99_s": finite(nearest_rank(column, 0.99)) for name, column in columns.items()},
    }


def _server(run: Run) -> dict[str, Any]:
    if run.facts is None:
        return {}
    return {
        "startup_s": run.facts.startup_s,
        "replay_s": run.replay_s,
        "warm_up_s": run.warm_up_s,
        "kv_tokens": run.facts.kv_tokens,
        "weights_gib": run.facts.weights_gib,
        "notes": list(run.facts.notes),
    }
