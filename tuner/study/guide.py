"""The guide: which configuration a calibrated simulator would launch next, and what that may still gain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.engines.base import Outcome, Predictor
from tuner.space.config import LaunchConfig
from tuner.study.baseline import Baseline
from tuner.study.budget import REPLAYS_A_TRIAL, Costs
from tuner.study.crashes import crash_odds
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.points import draw, mutated
from tuner.study.records import TrialRecord
from tuner.study.seeds import compiled, suggested
from tuner.study.simulated import Simulated
from tuner.study.storage import StudyPlace
from tuner.traces import Trace

_DRAWS = 700
_AROUND = 6
_MUTANTS = 60
_FIRST = 16
"""Capacities simulated before anything is guessed from them."""
_ROUNDS, _A_ROUND = 3, 4
_WARM = 0.6
"""A launch that finds vLLM's compile cache filled takes about so much of one that does not."""
_HALF_STEP = 1.02
"""A measured capacity lies so far above the highest load of the grid that passed, on average."""
_MEASURED = 0.04
"""Relative standard deviation of a measured capacity."""

Point = Mapping[str, Any]


def make_guide(
    job: Job, place: StudyPlace, baseline: Baseline, trace: Trace, hints: Sequence[Point] = ()
) -> Guide | None:
    """The guide of a job that has a predictor; `hints` are points to think of."""
    if job.predictor is None or not baseline.space.distributions():
        return None
    points = [*hints, *suggested(job, baseline, trace)]
    return Guide(job, job.predictor, baseline, points, Simulated(place))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A point to launch: what it should carry, how sure that is, and what it should add to the best so far
    (expected improvement, as a share)."""

    point: Point
    config: LaunchConfig
    rps: float
    spread: float
    gain: float


@dataclass(slots=True)
class _Candidate:
    point: Point
    config: LaunchConfig
    odds: float
    cost: float


class Guide:
    """Proposes launches by expected improvement net of crash odds and of what a launch costs."""

    def __init__(
        self,
        job: Job,
        predictor: Predictor,
        baseline: Baseline,
        suggestions: Sequence[Point],
        simulated: Simulated | None = None,
    ) -> None:
        self._simulated = simulated
        self._job = job
        self._predictor = predictor
        self._baseline = baseline
        self._suggested = suggestions
        self._distributions = baseline.space.distributions()

    def propose(self, history: History, costs: Costs, busy: frozenset[str] = frozenset()) -> Proposal | None:
        """The best launch by what is known now; None where the space holds nothing more that can start.

        `busy` are the keys of configurations that run now. It depends on the study's history and seed only.
        """
        rng = np.random.default_rng((self._job.spec.seed, history.launched(), 5))
        best = self.best(history)
        before = self._simulated.thought_of(history.launched()) if self._simulated is not None else []
        pool = self._pool(history, costs, busy, rng, before)
        if not pool:
            return None
        simulated: dict[LaunchConfig, float] = {}
        for candidate in self._first(pool, before, rng):
            simulated[candidate.config] = self._predictor.capacity_rps(candidate.config)
        for _ in range(_ROUNDS):
            guesses = self._predictor.screen([c.config for c in pool])
            scores = [
                _worth(simulated.get(c.config, rps), spread, best, c)
                for c, (rps, spread) in zip(pool, guesses, strict=True)
            ]
            order = np.argsort(scores)[::-1][: 2 * _A_ROUND].tolist()
            fresh = [pool[i] for i in order if pool[i].config not in simulated][:_A_ROUND]
            if not fresh:
                break
            for candidate in fresh:
                simulated[candidate.config] = self._predictor.capacity_rps(candidate.config)
        chosen = [(c, simulated[c.config]) for c in pool if simulated.get(c.config, 0.0) > 0.0]
        if not chosen:
            return None
        spreads = [self._predictor.spread(c.config) for c, _ in chosen]
        worths = [_worth(rps, s, best, c) for (c, rps), s in zip(chosen, spreads, strict=True)]
        order = np.argsort(worths)[::-1].tolist()
        if self._simulated is not None:
            top = [(dict(chosen[i][0].point), chosen[i][0].config, chosen[i][1], spreads[i]) for i in order]
            self._simulated.keep(self._distributions, top[:_AROUND], history.launched())
        candidate, rps = chosen[order[0]]
        spread = spreads[order[0]]
        gain = improvement(rps, spread, best) * (1.0 - candidate.odds)
        return Proposal(candidate.point, candidate.config, rps, spread, gain)

    def best(self, history: History) -> float:
        """What the best configuration so far carries: see `standing`."""
        passed = [record for record in history.records if record.outcome is Outcome.OK]
        return max((standing(self._predictor, record) for record in passed), default=0.0)

    def _pool(
        self,
        history: History,
        costs: Costs,
        busy: frozenset[str],
        rng: np.random.Generator,
        before: Sequence[Point],
    ) -> list[_Candidate]:
        """Untried points that the rules allow: suggested, drawn at random, and near to the best."""
        records = [r for r in history.records if r.outcome in (Outcome.OK, Outcome.SLO)]
        records.sort(key=lambda r: -r.value_rps)
        centres: list[Point] = [*before]
        points = {t.number: t.params for t in history.complete}
        centres += [points[r.number] for r in records[:_AROUND]]
        wanted = [*self._suggested, *before]
        wanted += [draw(self._distributions, rng) for _ in range(_DRAWS)]
        wanted += [mutated(self._distributions, c, rng) for c in centres for _ in range(_MUTANTS)]
        cached = {compiled(points[r.number]) for r in records}
        pool: dict[LaunchConfig, _Candidate] = {}
        dead = [r.config for r in history.records if r.outcome is Outcome.CRASH]
        alive = [r.config for r in records]
        for point in wanted:
            config = self._baseline.space.config(point)
            if config in pool or config.key() in busy or history.seen(config) is not None:
                continue
            if self._job.rules.check(config) is not None:
                continue
            launch_s = costs.launch_s * (_WARM if compiled(point) in cached else 1.0)
            cost = launch_s + REPLAYS_A_TRIAL * costs.replay_s
            odds = crash_odds(config, dead, alive, self._baseline.effective)
            pool[config] = _Candidate(point, config, odds, cost / (costs.trials_s(1) or 1.0))
        return list(pool.values())

    def _first(
        self, pool: list[_Candidate], before: Sequence[Point], rng: np.random.Generator
    ) -> list[_Candidate]:
        """Whom to simulate before anything is guessed: what was thought of last, else suggestions and some at
        random, for a first picture."""
        if before:
            return [candidate for candidate in pool if candidate.point in before]
        first = pool[: min(len(self._suggested), _FIRST // 2)]
        rest = pool[len(first) :]
        picked = rng.permutation(len(rest))[: _FIRST - len(first)].tolist()
        return [*first, *(rest[i] for i in picked)]


def standing(predictor: Predictor, record: TrialRecord) -> float:
    """What a configuration that met the SLO carries: its measurement, which stands between two loads of the
    grid, and the prediction of a simulator that has learnt from it, each by how sure it is."""
    rps, spread = predictor.capacity_rps(record.config), predictor.spread(record.config)
    measured = record.value_rps * _HALF_STEP
    if rps <= 0.0:
        return measured
    share = _MEASURED**2 / (_MEASURED**2 + spread**2)
    return float(math.exp(share * math.log(rps) + (1.0 - share) * math.log(measured)))


def improvement(rps: float, spread: float, best: float) -> float:
    """Expected improvement over `best`, as a share of it, of a capacity known to `spread`, lognormally."""
    if rps <= 0.0:
        return 0.0
    if best <= 0.0:
        return 1.0
    ahead = math.log(rps / best)
    if spread <= 0.0:
        return max(ahead, 0.0)
    z = ahead / spread
    return spread * (z * _below(z) + math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))


def _below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _worth(rps: float, spread: float, best: float, candidate: _Candidate) -> float:
    """Expected improvement for what a usual launch costs; without anything to beat, the most carried."""
    gain = improvement(rps, spread, best) if best > 0.0 else rps
    return gain * (1.0 - candidate.odds) / candidate.cost
