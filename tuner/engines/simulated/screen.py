"""A quick guess of many capacities from few simulated ones: a Gaussian process over what matters to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.engines.simulated.hidden import Numbers
from tuner.spec import FlagValue

_NUMBERS = {
    "max-num-seqs": 1.5,
    "max-num-batched-tokens": 1.5,
    "kv-tokens": 1.0,
    "block-size": 2.0,
    "stream-interval": 2.0,
}
"""Length scales, in octaves."""
_SWITCHES = ("enable-prefix-caching", "enable-chunked-prefill", "async-scheduling", "enforce-eager")
_OWN, _TOGETHER = 0.25, 0.15
_NOISE = 0.01


class Screen:
    """Guesses logs of capacities by what was noted since `forget`."""

    def __init__(self) -> None:
        self._at: list[Numbers] = []
        self._values: list[float] = []

    def note(self, effective: Mapping[str, FlagValue], value: float) -> None:
        """Keep the log of a simulated capacity."""
        self._at.append(_place(effective))
        self._values.append(value)

    def forget(self) -> None:
        """The coefficients have changed: nothing that was noted holds."""
        self._at.clear()
        self._values.clear()

    def guess(self, configs: Sequence[Mapping[str, FlagValue]]) -> Numbers:
        """Logs of capacities; minus infinity where nothing was noted yet."""
        if not self._at:
            return np.full(len(configs), -math.inf)
        known, values = np.array(self._at), np.array(self._values)
        mean = float(values.mean())
        inner = _covariance(known, known) + _NOISE**2 * np.eye(len(values))
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
