"""The guide: which configuration a calibrated simulator would launch next, and what that may still gain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.engines.base import Outcome, Predictor
from tuner.space.config import LaunchConfig
from tuner.study.baseline import Baseline
from tuner.study.budget import REPLAYS_A_TRIAL, Costs
from tuner.study.crashes import crash_odds
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.points import draw, levels, mutated
from tuner.study.records import TrialRecord
from tuner.study.seeds import compiled, suggested
from tuner.study.simulated import Simulated
from tuner.study.storage import StudyPlace
from tuner.traces import Trace

_DRAWS = 500
_AROUND = 6
_MUTANTS = 40
_FIRST = 16
"""Capacities simulated before anything is guessed from them."""
_ROUNDS, _A_ROUND = 4, 4
_CLIMBS = 4
"""Points whose flags are set to their best level one after the other, before each round."""
_WARM = 0.6
"""A launch that finds vLLM's compile cache filled takes about so much of one that does not."""
_HALF_STEP = 1.02
"""A measured capacity lies so far above the highest load of the grid that passed, on average."""
_MEASURED = 0.06
"""Relative standard deviation of a measured capacity."""
_OFFSET = 0.1
"""The same of how far all predictions are off together."""
_FORM = 0.02
"""The same of a predicted difference of configurations, for want of a better simulator."""
_ALIKE = 0.03
"""Configurations whose predictions differ by less are the same one for all that is known."""
_BETTER = 1.03
"""A flag is moved only where that is worth so much more: every further change blurs what a launch shows."""
_LOGISTIC = 0.55
"""Scale of the logistic distribution with a standard deviation of 1."""
_SPARE = 0.0025
"""Share of the trace that a max-model-len may reject: in a window it may be several times as much."""

Point = Mapping[str, Any]
Numbers = NDArray[np.float64]


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that may be launched: odds that it crashes, and what it costs in usual launches."""

    point: Point
    config: LaunchConfig
    odds: float
    cost: float


class Pool:
    """Untried points that can start, as far as is known; `found` by configuration."""

    def __init__(
        self, job: Job, baseline: Baseline, history: History, costs: Costs, busy: frozenset[str]
    ) -> None:
        self._job, self._baseline, self._history = job, baseline, history
        self._costs, self._busy = costs, busy
        self._needed = np.sort(job.trace.input_tokens.astype(np.int64) + job.trace.output_tokens)
        self._dead = [r.config for r in history.records if r.outcome is Outcome.CRASH]
        alive = [r for r in history.records if r.outcome in (Outcome.OK, Outcome.SLO)]
        self._alive = [r.config for r in alive]
        points = {t.number: t.params for t in history.complete}
        self._cached = {compiled(points[r.number]) for r in alive}
        self._left_out: set[LaunchConfig] = set()
        self.found: dict[LaunchConfig, Candidate] = {}

    def add(self, point: Point) -> Candidate | None:
        """Take in a point; None where it is not to be launched."""
        config = self._baseline.space.config(point)
        if config in self.found:
            return self.found[config]
        if config in self._left_out or not self._allowed(config):
            self._left_out.add(config)
            return None
        launch_s = self._costs.launch_s * (_WARM if compiled(point) in self._cached else 1.0)
        cost = launch_s + REPLAYS_A_TRIAL * self._costs.replay_s
        odds = crash_odds(config, self._dead, self._alive, self._baseline.effective)
        self.found[config] = Candidate(point, config, odds, cost / (self._costs.trials_s(1) or 1.0))
        return self.found[config]

    def launched(self, record: TrialRecord) -> Candidate:
        """What was launched already, as a candidate that is in no pool."""
        point = next(t.params for t in self._history.complete if t.number == record.number)
        return Candidate(point, record.config, 0.0, 1.0)

    def _allowed(self, config: LaunchConfig) -> bool:
        if config.key() in self._busy or self._history.seen(config) is not None:
            return False
        return self._job.rules.check(config) is None and not self._short(config)

    def _short(self, config: LaunchConfig) -> bool:
        """Whether max-model-len cuts it too fine: a window's share of long requests varies."""
        length = config.get("max-model-len")
        if isinstance(length, bool) or not isinstance(length, int) or self._job.spec.coverage is not None:
            return False
        served = int(np.searchsorted(self._needed, length, side="right"))
        return length > 0 and len(self._needed) - served > _SPARE * len(self._needed)


class Field:
    """Candidates beside what was launched: what each may gain, by simulation and by the draws of what
    simulation does not know.
    """

    def __init__(self, predictor: Predictor, history: History) -> None:
        self._predictor = predictor
        self._launched = [r for r in history.records if r.outcome in (Outcome.OK, Outcome.SLO)]
        self._passed = any(r.outcome is Outcome.OK and r.value_rps > 0.0 for r in self._launched)
        self.simulated: dict[LaunchConfig, float] = {}
        said = [predictor.capacity_rps(r.config) for r in self._launched]
        self._said = np.array([math.log(s) if s > 0.0 else -math.inf for s in said])
        pairs = zip(self._launched, said, strict=True)
        off = [value for r, s in pairs if s > 0.0 and (value := _off(r, s)) is not None]
        self._offset = sum(off) / (len(off) + (_MEASURED / _OFFSET) ** 2)
        # what lost to a lucky incumbent may be the best there is
        self._carried = np.array([self._log_carried(r, i) for i, r in enumerate(self._launched)])

    def _log_carried(self, record: TrialRecord, index: int) -> float:
        if record.outcome is Outcome.OK and record.value_rps > 0.0:
            return math.log(standing(self._predictor, record))
        return float(self._said[index] + self._offset)

    def simulate(self, config: LaunchConfig) -> None:
        """Have a capacity simulated."""
        self.simulated[config] = self._predictor.capacity_rps(config)

    def leaders(self, pool: Pool) -> list[Candidate]:
        """The best that was launched, to begin a climb from; nothing is gained by launching it again."""
        if not self._passed:
            return []
        return [pool.launched(self._launched[int(np.argmax(self._carried))])]

    def better(self, now: Candidate, others: Sequence[Candidate]) -> Candidate:
        """The best of the others where it is worth clearly more than what there is now."""
        worth = self._worth([now, *others])
        best = int(np.argmax(worth))
        return others[best - 1] if best and worth[best] > _BETTER * worth[0] else now

    def order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, what is worth most first: gain for what a usual launch costs."""
        if not candidates:
            return []
        worth = self._worth(candidates)
        return [candidates[i] for i in np.argsort(-worth, kind="stable").tolist()]

    def _worth(self, candidates: Sequence[Candidate]) -> Numbers:
        return self.gains(candidates) * [(1.0 - c.odds) / c.cost for c in candidates]

    def gains(self, candidates: Sequence[Candidate]) -> Numbers:
        """Expected improvement over the best so far, as a share; without any, what each carries."""
        configs = [c.config for c in candidates]
        screened = self._predictor.screen(configs)
        rps = np.array([self.simulated.get(c, rps) for c, (rps, _) in zip(configs, screened, strict=True)])
        if not self._passed:
            return rps
        logs = np.log(np.maximum(rps, 1e-12))
        drawn = self._predictor.outlook([*configs, *(r.config for r in self._launched)])
        own, others = drawn[:, : len(configs)], drawn[:, len(configs) :]
        best = (self._carried + others).max(axis=1)
        apart = np.abs(logs[:, None] - self._said[None, :])
        for column in range(len(self._launched)):
            apart[:, column] += (own - others[:, [column]]).std(axis=0)
        form = np.minimum(_FORM, [spread for _, spread in screened])
        scale = _LOGISTIC * form * (1.0 - np.exp(-apart.min(axis=1) / _ALIKE)) + 1e-4
        ahead = (logs + self._offset)[None, :] + own - best[:, None]
        gained = scale * np.logaddexp(0.0, ahead / scale)
        return np.asarray(np.where(rps > 0.0, gained.mean(axis=0), 0.0))


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
        field = Field(self._predictor, history)
        before = self._simulated.thought_of(history.launched()) if self._simulated is not None else []
        pool = self._pool(history, costs, busy, rng, before)
        if not pool.found:
            return None
        for candidate in self._first(list(pool.found.values()), before, rng):
            field.simulate(candidate.config)
        for _ in range(_ROUNDS):
            starts = field.order(list(pool.found.values()))[:_CLIMBS]
            for candidate in (*starts, *field.leaders(pool)):
                self._climb(candidate, pool, field, rng)
            order = field.order(list(pool.found.values()))
            fresh = [c for c in order[: 2 * _A_ROUND] if c.config not in field.simulated][:_A_ROUND]
            if not fresh:
                break
            for candidate in fresh:
                field.simulate(candidate.config)
        order = field.order([c for c in pool.found.values() if field.simulated.get(c.config, 0.0) > 0.0])
        if not order:
            return None
        top = order[:_AROUND]
        spreads = [self._predictor.spread(c.config) for c in top]
        if self._simulated is not None:
            kept = [
                (dict(c.point), c.config, field.simulated[c.config], spread)
                for c, spread in zip(top, spreads, strict=True)
            ]
            self._simulated.keep(self._distributions, kept, history.launched())
        best, rps = order[0], field.simulated[order[0].config]
        gain = float(field.gains([best])[0]) * (1.0 - best.odds)
        return Proposal(best.point, best.config, rps, spreads[0], gain)

    def _climb(self, start: Candidate, pool: Pool, field: Field, rng: np.random.Generator) -> None:
        """Set one flag after the other to the level that is worth most by now; all that is thought of joins
        the pool.
        """
        now = start
        for index in rng.permutation(len(self._distributions)).tolist():
            name = list(self._distributions)[index]
            others = levels(self._distributions[name], now.point.get(name))
            near = [found for value in others if (found := pool.add({**now.point, name: value}))]
            now = field.better(now, near)

    def _pool(
        self,
        history: History,
        costs: Costs,
        busy: frozenset[str],
        rng: np.random.Generator,
        before: Sequence[Point],
    ) -> Pool:
        """Untried points that the rules allow: suggested, drawn at random, and near to the best."""
        records = [r for r in history.records if r.outcome in (Outcome.OK, Outcome.SLO)]
        records.sort(key=lambda r: -r.value_rps)
        points = {t.number: t.params for t in history.complete}
        centres: list[Point] = [*before, *(points[r.number] for r in records[:_AROUND])]
        pool = Pool(self._job, self._baseline, history, costs, busy)
        for point in (*self._suggested, *before):
            pool.add(point)
        for _ in range(_DRAWS):
            pool.add(draw(self._distributions, rng))
        for centre in centres:
            for _ in range(_MUTANTS):
                pool.add(mutated(self._distributions, centre, rng))
        return pool

    def _first(
        self, pool: list[Candidate], before: Sequence[Point], rng: np.random.Generator
    ) -> list[Candidate]:
        """Whom to simulate before anything is guessed: what was thought of last, else suggestions and some at
        random, for a first picture."""
        if before:
            return [candidate for candidate in pool if candidate.point in before]
        first = pool[: min(len(self._suggested), _FIRST // 2)]
        rest = pool[len(first) :]
        picked = rng.permutation(len(rest))[: _FIRST - len(first)].tolist()
        return [*first, *(rest[i] for i in picked)]


def _off(record: TrialRecord, said: float) -> float | None:
    """By how much a measurement differs from its prediction, as a log; None where it does not tell."""
    if record.outcome is Outcome.OK and record.value_rps > 0.0:
        return math.log(record.value_rps * _HALF_STEP / said)
    if record.lost_at_rps is not None and record.lost_at_rps < said:
        return math.log(record.lost_at_rps / said)
    return None


def standing(predictor: Predictor, record: TrialRecord) -> float:
    """What a configuration that ran carries: its measurement, which stands between two loads of the grid, and
    the prediction of a simulator that has learnt from it, each by how sure it is. One that lost, or met the
    SLO nowhere, has the prediction alone.
    """
    rps, spread = predictor.capacity_rps(record.config), predictor.spread(record.config)
    if record.outcome is not Outcome.OK:
        return rps
    measured = record.value_rps * _HALF_STEP
    if rps <= 0.0:
        return measured
    share = _MEASURED**2 / (_MEASURED**2 + spread**2)
    return float(math.exp(share * math.log(rps) + (1.0 - share) * math.log(measured)))
