"""Who is in the finals, and what each has shown there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.engines.base import LaunchFailure, Outcome, Predictor, ServerFacts
from tuner.measure import STEP, Capacity, achieved, finite
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue, LoadMode
from tuner.study.baseline import Baseline
from tuner.study.evidence import Launched
from tuner.study.guide import standing
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.load import Offer
from tuner.study.records import TrialRecord
from tuner.study.trial import Run
from tuner.study.users import UserFigures

CONTENDERS = 2
BETTER = STEP * (1.0 + 1e-9)
"""Where figures are exact, a winner carries more than one step of the load grid over the default."""
Bounds = tuple[float | None, float | None]
_FURTHEST = 4.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What is said of a finalist: the load that it carries within the SLO, and what users feel there."""

    load: float
    throughput_rps: float
    output_tps: float
    p99_s: float | None
    p99_interval_s: Bounds
    mean_s: float | None


@dataclass(slots=True)
class Finalist:
    """One configuration in the finals. `start` is the load at which its capacity search begins.

    An engine that is exact leaves `runs`, one that is not `launched`; `figures` are set when all is over.
    """

    label: str
    config: LaunchConfig
    start: float
    changed: Mapping[str, FlagValue] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)
    users: UserFigures = field(default_factory=UserFigures)
    figures: Figures | None = None
    half_slo: float | None = None
    """Its capacity at half the SLO, in requests a second, where its replays reach that far."""

    @property
    def load(self) -> float:
        """The highest load that it carried on every exact launch; 0 where it failed."""
        return min((run.capacity.rps if run.capacity else 0.0 for run in self.runs), default=0.0)

    @property
    def facts(self) -> ServerFacts | None:
        """What its latest server said of itself."""
        said = [*(run.facts for run in self.runs), *(one.facts for one in self.launched)]
        return next((facts for facts in reversed(said) if facts is not None), None)

    @property
    def failure(self) -> LaunchFailure | None:
        """Why one of its launches failed."""
        failed = [*(run.failure for run in self.runs), *(one.failure for one in self.launched)]
        return next((failure for failure in reversed(failed) if failure is not None), None)


def exact_figures(capacity: Capacity, offer: Offer) -> Figures:
    """The figures of a capacity that is the same whenever it is measured."""
    at = capacity.at
    latency = at.replay.e2e_s()[at.replay.ok]
    return Figures(
        load=capacity.rps,
        throughput_rps=offer.throughput_rps(capacity),
        output_tps=achieved(at.replay)[1] if capacity.rps > 0.0 else 0.0,
        p99_s=finite(at.p99_s),
        p99_interval_s=(finite(at.interval_s[0]), finite(at.interval_s[1])),
        mean_s=finite(float(latency.mean())) if len(latency) else None,
    )


def choose_contenders(
    job: Job,
    history: History,
    baseline: Baseline,
    held_out: Offer,
    share: float,
    *,
    most: int = CONTENDERS,
) -> list[Finalist]:
    """The best of the search as they would be exported; of equals the one that changes least.

    `share` is what a configuration is expected to carry on the held-out part, of what it did in the search.
    """
    passed = [r for r in history.records if r.number != 0]
    passed = [r for r in passed if r.outcome is Outcome.OK or r.lost_at_rps is not None]
    carried = {r.number: _carried(job, r) for r in passed}
    passed = [r for r in passed if carried[r.number] > 0.0]
    passed.sort(key=lambda r: (-carried[r.number], len(baseline.flags_changed(r.config)), r.number))
    found: dict[LaunchConfig, Finalist] = {}
    for record in passed:
        config = baseline.least(record.config)
        if config == baseline.config or config in found:
            continue
        found[config] = Finalist(
            label="ABC"[len(found)],
            config=config,
            start=_start(job, carried[record.number], held_out, share),
            changed=baseline.flags_changed(config),
        )
        if len(found) == most:
            break
    return list(found.values())


def _carried(job: Job, record: TrialRecord) -> float:
    """What a trial is ranked by: its capacity, and where launches differ what a predictor makes of it, which
    may put one that lost to a lucky incumbent first.
    """
    if job.engine.deterministic or job.predictor is None:
        return record.value_rps if record.outcome is Outcome.OK else 0.0
    return standing(job.predictor, record)


def the_default(job: Job, history: History, baseline: Baseline, held_out: Offer, share: float) -> Finalist:
    """The default as a finalist."""
    trial = history.baseline()
    carried = float(trial.value or 0.0) if trial and trial.constraints["crash"] <= 0 else 0.0
    return Finalist("default", baseline.config, _start(job, carried, held_out, share))


def best_of(contenders: list[Finalist], default: Finalist) -> Finalist | None:
    """Which to deploy by exact figures: the best contender where it beats the default by more than a grid
    step. None where nothing meets the SLO.
    """
    best = max(contenders, key=lambda c: (round(c.load, 9), -len(c.changed)), default=None)
    if best is not None and best.load > default.load * BETTER:
        return best
    return default if default.load > 0.0 else None


def carried_over(job: Job, config: LaunchConfig, searched: Offer, held_out: Offer) -> float:
    """What a configuration should carry on the held-out part of the trace, as a share of what it carries on
    the search's: as predicted, else by the tokens of a request.

    The rates at which both were recorded do not matter: what a server carries depends on the requests.
    """
    if job.engine.deterministic:
        return 1.0
    if (ask := job.predictor) is not None and (share := _predicted(ask, config, held_out)) > 0.0:
        return share
    if job.spec.load is LoadMode.USERS:
        return 1.0
    return _bounded(_tokens(searched) / max(_tokens(held_out), 1.0))


def _predicted(ask: Predictor, config: LaunchConfig, held_out: Offer) -> float:
    before = ask.capacity_rps(config)
    after = ask.capacity_rps(config, trace=held_out.test.trace) if before > 0.0 else 0.0
    return _bounded(after / before) if after > 0.0 else 0.0


def _tokens(offer: Offer) -> float:
    trace = offer.test.trace
    return float(trace.input_tokens.mean() + trace.output_tokens.mean())


def _bounded(share: float) -> float:
    return min(max(share, 1.0 / _FURTHEST), _FURTHEST)


def _start(job: Job, carried: float, held_out: Offer, share: float) -> float:
    """From where a capacity is searched: for a deterministic engine the same whoever repeats it."""
    if job.engine.deterministic or carried <= 0.0:
        return held_out.start
    return carried * share
