"""Step-time coefficients fitted to what launches measured, and what each launch shows beyond them.

Unknown are the logs of the knobs, `theta`, the same for every configuration, and for every launch i one log
of time `beyond` them, u_i, that stretches all of its steps: hidden effects of its flags. Both have normal
priors (data sheet; `Likeness`), every replay is linearised around the knobs that it was last simulated with,
and the joint posterior of all launches is one small linear system: Gauss-Newton on a penalised least-squares
problem. A replay's own speed varies by `_REPLAY`, which bounds what any one of them can teach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.engines.simulated.course import spreads, vector
from tuner.engines.simulated.knobs import SPREADS
from tuner.engines.simulated.likeness import Likeness, Numbers
from tuner.spec import FlagValue

Course = Mapping[str, Sequence[float | None]]
Simulate = Callable[[int, float, Numbers], Course]
"""The course of a replay of launch i at a load, with these logs of the knobs."""

_REPLAY = 0.025
_NUDGE = 0.06
_FIRST_ROUNDS, _LATER_ROUNDS = 4, 2
_FAR = 0.12
"""A replay linearised so far from where its knobs are now is simulated again."""
_STRIDE = 0.3
_CLOSE = 0.015
_OUTLIER = 3.0
_JITTER = 1e-9


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


class Calibration:
    """Learns launch by launch; `theta` and `beyond` hold the posterior means."""

    def __init__(self, simulate: Simulate, likeness: Likeness) -> None:
        self._simulate = simulate
        self._likeness = likeness
        self._configs: list[Mapping[str, FlagValue]] = []
        self._seen: list[Seen] = []
        self.theta = np.zeros(len(SPREADS))
        self.beyond = np.zeros(0)
        self._joint = np.diag(SPREADS**2)

    @property
    def launches(self) -> int:
        """How many launches it has learnt from."""
        return len(self._configs)

    def learn(self, config: Mapping[str, FlagValue], replays: Sequence[tuple[float, Course]]) -> None:
        """Take in a launch of a configuration (its values in force): the courses of its replays by load."""
        launch = len(self._configs)
        mean, _ = self.beyond_of([config])
        self._configs.append(config)
        self.beyond = np.append(self.beyond, mean)
        new = [Seen(launch, load, vector(course), self._knobs(launch)) for load, course in replays]
        self._seen += new
        for round_ in range(_FIRST_ROUNDS if launch == 0 else _LATER_ROUNDS):
            for seen in new:
                self._linearise(seen, slopes=round_ == 0 or launch == 0)
            moved = self._solve()
            if moved < _CLOSE:
                break
        for seen in self._seen:
            if float(np.abs(self._knobs(seen.launch) - seen.at).max()) > _FAR:
                self._linearise(seen, slopes=False)
        self._solve()

    def knobs_of(self, config: Mapping[str, FlagValue]) -> Numbers:
        """The logs of the knobs to simulate a configuration with."""
        mean, _ = self.beyond_of([config])
        return np.asarray(self.theta + mean[0])

    def beyond_of(self, configs: Sequence[Mapping[str, FlagValue]]) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of what configurations take beyond the knobs, as logs of time."""
        if not self._configs:
            return np.zeros(len(configs)), np.zeros(len(configs))
        own = self._prior(configs, configs, diagonal=True)
        m = len(self.beyond)
        known = self._configs[:m]
        if not known:
            return np.zeros(len(configs)), np.sqrt(own)
        cross = self._prior(configs, known)
        inner = self._prior(known, known) + _JITTER * np.eye(m)
        weights = np.linalg.solve(inner, cross.T).T
        covariance = self._joint[len(SPREADS) :, len(SPREADS) :]
        mean = weights @ self.beyond
        variance = own - np.einsum("ij,ij->i", weights, cross)
        if covariance.shape[0] == m:
            variance = variance + np.einsum("ij,jk,ik->i", weights, covariance, weights)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def knobs_spread(self, weights: Numbers) -> float:
        """Standard deviation of a weighted sum of the knobs."""
        block = self._joint[: len(SPREADS), : len(SPREADS)]
        return math.sqrt(max(float(weights @ block @ weights), 0.0))

    def _knobs(self, launch: int) -> Numbers:
        return np.asarray(self.theta + self.beyond[launch])

    def _prior(
        self,
        one: Sequence[Mapping[str, FlagValue]],
        other: Sequence[Mapping[str, FlagValue]],
        *,
        diagonal: bool = False,
    ) -> Numbers:
        """Prior covariance, of differences from the first launch, whose own effects the knobs take."""
        first = self._configs[:1]
        like = self._likeness
        at_one = like.covariance(one, first)[:, 0]
        if diagonal:
            return np.asarray(2.0 * (like.variance() - at_one))
        at_other = like.covariance(other, first)[:, 0]
        return np.asarray(like.covariance(one, other) - at_one[:, None] - at_other[None, :] + like.variance())

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
        """The joint posterior; returns how far the knobs of any launch moved."""
        k, m = len(SPREADS), len(self._configs)
        prior = self._prior(self._configs, self._configs) + _JITTER * np.eye(m)
        precision = np.zeros((k + m, k + m))
        precision[:k, :k] = np.diag(SPREADS**-2.0)
        precision[k:, k:] = np.linalg.inv(prior)
        pull = np.zeros(k + m)
        for seen in self._seen:
            if not seen.slopes.size:
                continue
            design = np.zeros((k, k + m))
            design[:, :k] = np.eye(k)
            design[:, k + seen.launch] = 1.0
            matrix, towards = seen.information()
            precision += design.T @ matrix @ design
            pull += design.T @ towards
        self._joint = np.linalg.inv(precision)
        found = self._joint @ pull
        before = [self._knobs(i) for i in range(m)]
        theta, beyond = found[:k], found[k:]
        step = max(float(np.abs(theta + beyond[i] - before[i]).max()) for i in range(m))
        share = min(1.0, _STRIDE / step) if step > 0.0 else 1.0
        self.theta = self.theta + share * (theta - self.theta)
        self.beyond = self.beyond + share * (beyond - self.beyond)
        return step
