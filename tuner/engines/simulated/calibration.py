"""Step-time coefficients fitted to what launches measured, and what each launch shows beyond them.

Unknown are the logs of the knobs, `theta`, the same for every configuration, and for every launch i one log
of time `beyond` them, u_i, that stretches all of its steps: what its flags hide (`Beliefs`) and the launch's
own speed. The knobs have a normal prior (data sheet); every replay is linearised around the knobs that it was
last simulated with. Without the knobs that leaves a normal likelihood of all u, from which the hidden effects
are drawn; their mean goes back into one small linear system: Gauss-Newton on a penalised least-squares
problem. A replay's own speed varies by `_REPLAY`, which bounds what any one of them can teach. The capacity
that a launch was measured at is one more row, since courses are judged mostly away from the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.engines.simulated.course import spreads, vector
from tuner.engines.simulated.hidden import Beliefs, Numbers, launch_noise
from tuner.engines.simulated.knobs import BOUND_BY, ELASTICITY, SPREADS
from tuner.spec import FlagValue

Course = Mapping[str, Sequence[float | None]]
Simulate = Callable[[int, float, Numbers], Course]
"""The course of a replay of launch i at a load, with these logs of the knobs."""
Carry = Callable[[int, Numbers], float]
"""The capacity of launch i with these logs of the knobs; 0 where it carries nothing."""

_REPLAY = 0.025
_NUDGE = 0.06
_FIRST_ROUNDS, _LATER_ROUNDS = 4, 2
_FAR = 0.12
"""A replay linearised so far from where its knobs are now is simulated again."""
_STRIDE = 0.3
_CLOSE = 0.015
_OUTLIER = 3.0
_LIMIT = 0.06
"""Standard deviation of a measured capacity against a simulated one, as a log."""


@dataclass(slots=True)
class Seen:
    """One replay: what was measured, and the simulation of it around the knobs `at`."""

    launch: int
    load: float
    measured: Numbers
    at: Numbers
    simulated: Numbers = field(default_factory=lambda: np.zeros(0))
    slopes: Numbers = field(default_factory=lambda: np.zeros((0, 0)))

    def information(self) -> tuple[Numbers, Numbers]:
        """Precision matrix and vector of the replay's own knobs, from its linearised residuals."""
        known = np.isfinite(self.measured) & np.isfinite(self.simulated)
        slopes = self.slopes[known]
        residual = (self.measured - self.simulated)[known]
        scale = spreads()[known]
        far = np.abs(residual / scale)
        scale = scale * np.sqrt(np.maximum(far / _OUTLIER, 1.0))
        speed = slopes.sum(axis=1)
        noise = np.diag(scale**2) + _REPLAY**2 * np.outer(speed, speed)
        weighted = np.linalg.solve(noise, slopes)
        return slopes.T @ weighted, weighted.T @ (residual + slopes @ self.at)


@dataclass(slots=True)
class Limit:
    """What a launch carried: at least `low`, less than `high` (0 and infinity: not known)."""

    launch: int
    low: float
    high: float
    at: Numbers
    carried: float = 0.0

    def information(self) -> tuple[Numbers, Numbers]:
        """As that of `Seen`."""
        slope = -ELASTICITY * BOUND_BY
        residual = self._residual()
        far = abs(residual) / _LIMIT
        variance = _LIMIT**2 * max(far / _OUTLIER, 1.0)
        if residual == 0.0 and not (self.low and math.isfinite(self.high)):
            return np.zeros((len(slope), len(slope))), np.zeros(len(slope))
        return np.outer(slope, slope) / variance, slope * (residual + float(slope @ self.at)) / variance

    def _residual(self) -> float:
        if self.carried <= 0.0:
            return 0.0
        log, low = math.log(self.carried), math.log(self.low) if self.low > 0.0 else -math.inf
        if math.isfinite(self.high) and self.low > 0.0:
            return (low + math.log(self.high)) / 2.0 - log
        return min(math.log(self.high) - log, 0.0) if math.isfinite(self.high) else max(low - log, 0.0)


class Calibration:
    """Learns launch by launch; `theta` and `beyond` hold the posterior means."""

    def __init__(self, simulate: Simulate, carry: Carry) -> None:
        self._simulate, self._carry = simulate, carry
        self._configs: list[Mapping[str, FlagValue]] = []
        self._seen: list[Seen] = []
        self._limits: list[Limit] = []
        self._beliefs: Beliefs | None = None
        self.theta = np.zeros(len(SPREADS))
        self.beyond = np.zeros(0)
        self._spread = np.diag(SPREADS**2)

    @property
    def launches(self) -> int:
        """How many launches it has learnt from."""
        return len(self._configs)

    def learn(
        self,
        config: Mapping[str, FlagValue],
        replays: Sequence[tuple[float, Course]],
        bracket: tuple[float, float] = (0.0, math.inf),
    ) -> None:
        """Take in a launch of a configuration (its values in force): the courses of its replays by load, and
        the loads that its capacity lies between.
        """
        launch = len(self._configs)
        if self._beliefs is None:
            self._beliefs = Beliefs(config)
        mean, _ = self.beyond_of([config])
        self._configs.append(config)
        self.beyond = np.append(self.beyond, mean)
        new = [Seen(launch, load, vector(course), self._knobs(launch)) for load, course in replays]
        self._seen += new
        if bracket != (0.0, math.inf):
            self._limits.append(Limit(launch, *bracket, self._knobs(launch)))
        for round_ in range(_FIRST_ROUNDS if launch == 0 else _LATER_ROUNDS):
            for seen in new:
                self._linearise(seen, slopes=round_ == 0 or launch == 0)
            self._weigh(launch)
            moved = self._solve()
            if moved < _CLOSE:
                break
        for seen in self._seen:
            if float(np.abs(self._knobs(seen.launch) - seen.at).max()) > _FAR:
                self._linearise(seen, slopes=False)
        self._weigh()
        self._solve()

    def knobs_of(self, config: Mapping[str, FlagValue]) -> Numbers:
        """The logs of the knobs to simulate a configuration with."""
        mean, _ = self.beyond_of([config])
        return np.asarray(self.theta + mean[0])

    def beyond_of(self, configs: Sequence[Mapping[str, FlagValue]]) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of what configurations take beyond the knobs, as logs of time."""
        drawn = self.draws(configs)
        return drawn.mean(axis=0), drawn.std(axis=0)

    def draws(self, configs: Sequence[Mapping[str, FlagValue]]) -> Numbers:
        """Draws of that, draws x configurations; the same draw of all is one belief."""
        if self._beliefs is None:
            return np.zeros((1, len(configs)))
        return self._beliefs.draws(configs)

    def knobs_spread(self, weights: Numbers) -> float:
        """Standard deviation of a weighted sum of the knobs."""
        return math.sqrt(max(float(weights @ self._spread @ weights), 0.0))

    def _knobs(self, launch: int) -> Numbers:
        return np.asarray(self.theta + self.beyond[launch])

    def _weigh(self, launch: int | None = None) -> None:
        """Simulate what launches carry with their knobs as they are now; all of them, or one."""
        for limit in self._limits:
            at = self._knobs(limit.launch)
            moved = float(np.abs(at - limit.at).max()) > _CLOSE
            if (launch is None or limit.launch == launch) and (moved or limit.carried <= 0.0):
                limit.at, limit.carried = at.copy(), self._carry(limit.launch, at)

    def _linearise(self, seen: Seen, *, slopes: bool) -> None:
        at = self._knobs(seen.launch)
        seen.at = at.copy()
        seen.simulated = vector(self._simulate(seen.launch, seen.load, at))
        if not slopes and seen.slopes.size:
            return
        columns = []
        for i in range(len(at)):
            nudged = at.copy()
            nudged[i] += _NUDGE
            columns.append((vector(self._simulate(seen.launch, seen.load, nudged)) - seen.simulated) / _NUDGE)
        seen.slopes = np.nan_to_num(np.stack(columns, axis=1))

    def _solve(self) -> float:
        """The posterior; returns how far the knobs of any launch moved."""
        k, m = len(SPREADS), len(self._configs)
        precision = np.zeros((k + m, k + m))
        precision[:k, :k] = np.diag(SPREADS**-2.0)
        pull = np.zeros(k + m)
        told: list[Seen | Limit] = [seen for seen in self._seen if seen.slopes.size]
        for one in (*told, *self._limits):
            design = np.zeros((k, k + m))
            design[:, :k] = np.eye(k)
            design[:, k + one.launch] = 1.0
            matrix, towards = one.information()
            precision += design.T @ matrix @ design
            pull += design.T @ towards
        # the first launch has nothing beyond: the knobs take what it hides
        knobs, cross = precision[:k, :k], precision[:k, k + 1 :]
        solved = np.linalg.solve(knobs, np.column_stack([pull[:k], cross]))
        before = [self._knobs(i) for i in range(m)]
        beyond = np.zeros(m)
        self._spread = np.linalg.inv(knobs)
        if m > 1:
            assert self._beliefs is not None
            likelihood = precision[k + 1 :, k + 1 :] - cross.T @ solved[:, 1:]
            towards = pull[k + 1 :] - cross.T @ solved[:, 0]
            self._beliefs.learn(self._configs[1:], likelihood, towards)
            own = np.linalg.inv(launch_noise(m - 1))
            drawn = self._beliefs.draws(self._configs[1:])
            beyond[1:] = np.linalg.solve(likelihood + own, towards + own @ drawn.mean(axis=0))
            moves = solved[:, 1:]
            covariance = np.linalg.inv(likelihood + own) + np.atleast_2d(np.cov(drawn.T))
            self._spread = self._spread + moves @ covariance @ moves.T
        theta = solved[:, 0] - solved[:, 1:] @ beyond[1:]
        step = max(float(np.abs(theta + beyond[i] - before[i]).max()) for i in range(m))
        share = min(1.0, _STRIDE / step) if step > 0.0 else 1.0
        self.theta = self.theta + share * (theta - self.theta)
        self.beyond = self.beyond + share * (beyond - self.beyond)
        return step
