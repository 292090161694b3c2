"""Who is in the finals, and what each has shown there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.engines.base import Outcome
from tuner.measure import MIN_REQUESTS, STEP, Judgement, p99_interval
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue, Slo
from tuner.study.baseline import Baseline
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.load import Offer
from tuner.study.trial import Run
from tuner.study.users import UserFigures

CONTENDERS = 2
BETTER = STEP * (1.0 + 1e-9)
"""A winner carries more than one step of the load grid over the default."""


@dataclass(slots=True)
class Finalist:
    """One configuration in the finals. `start` is the load at which its capacity search begins."""

    label: str
    config: LaunchConfig
    start: float
    changed: Mapping[str, FlagValue] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    users: UserFigures = field(default_factory=UserFigures)

    @property
    def run(self) -> Run:
        """The launch that counts: the one that carried least."""
        return min(self.runs, key=lambda run: run.capacity.rps if run.capacity else 0.0)

    @property
    def load(self) -> float:
        """The highest load that it carried on every launch; 0 where it failed."""
        capacity = self.run.capacity if self.runs else None
        return capacity.rps if capacity else 0.0


def choose_contenders(
    job: Job, history: History, baseline: Baseline, search_offer: Offer, held_out: Offer
) -> list[Finalist]:
    """The best two of the search as they would be exported; of equals the one that changes least."""
    passed = [r for r in history.records if r.outcome is Outcome.OK and r.number != 0]
    passed.sort(key=lambda r: (-r.value_rps, len(baseline.flags_changed(r.config)), r.number))
    found: dict[LaunchConfig, Finalist] = {}
    for record in passed:
        config = baseline.least(record.config)
        if config == baseline.config or config in found:
            continue
        found[config] = Finalist(
            label="AB"[len(found)],
            config=config,
            start=_start(job, record.value_rps, search_offer, held_out),
            changed=baseline.flags_changed(config),
        )
        if len(found) == CONTENDERS:
            break
    return list(found.values())


def the_default(
    job: Job, history: History, baseline: Baseline, search_offer: Offer, held_out: Offer
) -> Finalist:
    """The default as a finalist."""
    trial = history.baseline()
    carried = float(trial.value or 0.0) if trial and trial.constraints["crash"] <= 0 else 0.0
    return Finalist("default", baseline.config, _start(job, carried, search_offer, held_out))


def best_of(contenders: list[Finalist], default: Finalist) -> Finalist | None:
    """Which to deploy: the best contender where it beats the default by more than a grid step.

    None where nothing meets the SLO.
    """
    best = max(contenders, key=lambda c: (round(c.load, 9), -len(c.changed)), default=None)
    if best is not None and best.load > default.load * BETTER:
        return best
    return default if default.load > 0.0 else None


def surely(judgement: Judgement, slo: Slo) -> Judgement:
    """The same judgement, passing only where the upper bound of every P99 is within the SLO.

    Below 368 requests a P99 has no upper bound, and the guarded point verdict stays.
    """
    if not judgement.passes or judgement.requests < MIN_REQUESTS:
        return judgement
    replay = judgement.replay
    sure = all(p99_interval(replay.metric_s(name))[1] <= limit for name, limit in slo.limits().items())
    return judgement if sure else replace(judgement, passes=False)


def _start(job: Job, carried: float, search_offer: Offer, held_out: Offer) -> float:
    """From where a capacity is searched: for a deterministic engine the same whoever repeats it."""
    if job.engine.deterministic or carried <= 0.0:
        return held_out.start
    return carried * held_out.start / search_offer.start
