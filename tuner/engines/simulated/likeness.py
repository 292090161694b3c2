"""How alike two configurations are: the covariance of what launches show beyond the simulator.

What the simulator lacks (a kernel that is slow at one block size, a batch size that thrashes) depends mostly
on one flag at a time, so the covariance is a sum over the flags, each falling off exponentially with the
distance, which draws straight lines between neighbours and keeps to the nearest beyond (a sum of
Ornstein-Uhlenbeck processes), plus a small part for what flags do together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.spec import FlagValue

Numbers = NDArray[np.float64]

LINEAR = {"gpu-memory-utilization": 0.12}
"""Flags whose distance is a difference, and the difference that counts as far; others by octaves."""
_OCTAVES = 4.0
_FINE = frozenset({"block-size", "stream-interval", "swap-space", "kv-offloading-size"})
"""Flags with few values, each a matter of its own: two octaves count as far."""
_OWN = 0.14
"""Standard deviation that one flag's effect has, as a log of time."""
_TOGETHER = 0.04
_SELF = 0.015
"""What only a configuration itself shows."""


class Likeness:
    """Covariances of configurations, given as their values in force."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._flags = tuple(flags)

    def columns(self, configs: Sequence[Mapping[str, FlagValue]]) -> list[Numbers | list[str]]:
        """The values of each flag, as positions on its scale, or as words."""
        return [_column(flag, [config.get(flag) for config in configs]) for flag in self._flags]

    def covariance(
        self, one: Sequence[Mapping[str, FlagValue]], other: Sequence[Mapping[str, FlagValue]]
    ) -> Numbers:
        """Covariance of every configuration of `one` with every one of `other`."""
        both = [*one, *other]
        n = len(one)
        total = np.zeros((n, len(other)))
        apart = np.zeros_like(total)
        for column in self.columns(both):
            away = _distances(column, n)
            total += _OWN**2 * np.exp(-away)
            apart += away
        return total + _TOGETHER**2 * np.exp(-apart) + _SELF**2 * (apart < 1e-9)

    def variance(self) -> float:
        """Of any one configuration."""
        return len(self._flags) * _OWN**2 + _TOGETHER**2 + _SELF**2


def _column(flag: str, values: Sequence[FlagValue]) -> Numbers | list[str]:
    if any(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        values = [0 if v is None else v for v in values]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return [repr(v) for v in values]
    if flag in LINEAR:
        return np.array([float(v) / LINEAR[flag] for v in values])  # type: ignore[arg-type]
    octaves = _OCTAVES / 2.0 if flag in _FINE else _OCTAVES
    return np.array([math.log2(max(float(v), 0.0) + 1.0) / octaves for v in values])  # type: ignore[arg-type]


def _distances(column: Numbers | list[str], n: int) -> Numbers:
    if isinstance(column, list):
        return np.array([[float(a != b) for b in column[n:]] for a in column[:n]])
    return np.abs(column[:n, None] - column[None, n:])
