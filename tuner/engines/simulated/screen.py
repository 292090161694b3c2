"""A quick guess of many capacities from few simulated ones: a Gaussian process over what matters to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.engines.simulated.likeness import Numbers
from tuner.spec import FlagValue

_NUMBERS = {"max-num-seqs": 1.5, "max-num-batched-tokens": 1.5, "kv-tokens": 1.0, "block-size": 2.0}
"""Length scales, in octaves."""
_SWITCHES = ("enable-prefix-caching", "enable-chunked-prefill", "async-scheduling", "enforce-eager")
_OWN, _TOGETHER = 0.25, 0.15
_FRESH, _STALE = 0.01, 0.06
_KEPT = 160


class Screen:
    """Guesses logs of capacities by what was noted; what was noted before `forget` counts less."""

    def __init__(self) -> None:
        self._at: list[Numbers] = []
        self._values: list[float] = []
        self._age: list[int] = []
        self._now = 0

    def note(self, effective: Mapping[str, FlagValue], value: float) -> None:
        """Keep the log of a simulated capacity."""
        self._at.append(_place(effective))
        self._values.append(value)
        self._age.append(self._now)
        if len(self._at) > _KEPT:
            oldest = self._age.index(min(self._age))
            del self._at[oldest], self._values[oldest], self._age[oldest]

    def forget(self) -> None:
        """The coefficients have changed: what was noted so far is stale."""
        self._now += 1

    def guess(self, configs: Sequence[Mapping[str, FlagValue]]) -> Numbers:
        """Logs of capacities; minus infinity where nothing was noted yet."""
        if not self._at:
            return np.full(len(configs), -math.inf)
        known, values = np.array(self._at), np.array(self._values)
        ages = self._now - np.array(self._age)
        noise = np.where(ages == 0, _FRESH, _STALE * np.sqrt(np.maximum(ages, 1)))
        weights = 1.0 / noise**2
        mean = float((weights * values).sum() / weights.sum())
        inner = _covariance(known, known) + np.diag(noise**2)
        pull = np.linalg.solve(inner, values - mean)
        places = np.array([_place(config) for config in configs])
        return np.asarray(mean + _covariance(places, known) @ pull)


def _place(effective: Mapping[str, FlagValue]) -> Numbers:
    numbers = [
        math.log2(max(float(effective.get(name) or 1), 1.0)) / scale  # type: ignore[arg-type]
        for name, scale in _NUMBERS.items()
    ]
    return np.array([*numbers, *(0.0 if effective.get(name) is False else 1.0 for name in _SWITCHES)])


def _covariance(one: Numbers, other: Numbers) -> Numbers:
    apart = np.abs(one[:, None, :] - other[None, :, :])
    smooth = np.exp(-0.5 * apart**2)
    together: Numbers = smooth.prod(axis=2)
    return np.asarray(_OWN**2 * smooth.sum(axis=2) + _TOGETHER**2 * together)
