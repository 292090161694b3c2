"""Between loads: P99 rises with the load, and its logarithm nearly in a line with the logarithm of it."""

from __future__ import annotations

import numpy as np

from tuner.traces.trace import F64

REACH = 1.1
"""Beyond the loads measured an estimate goes this factor at most."""


def load_at_limit(loads_rps: F64, p99_s: F64, limit_s: float, *, reach: float = REACH) -> F64:
    """The load at which P99 reaches a limit.

    Args:
        loads_rps: the L loads measured, ascending.
        p99_s: P99 at these loads, last axis L (the draws of a bootstrap, say); infinity for failures.
        limit_s: the limit.
        reach: how far beyond the loads a line is drawn on, as a factor.

    P99 is first made monotone (the closest non-decreasing sequence of its logarithms). Between a load with a
    finite P99 and one without, nothing can be drawn: the lower one counts.

    Returns:
        Loads in requests/s, the shape of `p99_s` without its last axis.
    """
    x = np.log(np.asarray(loads_rps, np.float64))
    with np.errstate(divide="ignore"):
        y = np.log(np.maximum(np.asarray(p99_s, np.float64), 1e-9) / limit_s)
    flat = y.reshape(-1, y.shape[-1])
    lines = np.array([_crossing(x, isotonic(row), np.log(reach)) for row in flat])
    return np.asarray(np.exp(lines).reshape(y.shape[:-1]), np.float64)


def isotonic(y: F64, weights: F64 | None = None) -> F64:
    """The closest non-decreasing sequence in least squares: pool adjacent violators (Ayer et al. 1955)."""
    if len(y) < 2 or not (y[1:] < y[:-1]).any():
        return y
    w = np.ones(len(y)) if weights is None else weights
    means: list[float] = []
    sums: list[float] = []
    counts: list[int] = []
    for value, weight in zip(y.tolist(), w.tolist(), strict=True):
        means.append(value)
        sums.append(weight)
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            last, its, many = means.pop(), sums.pop(), counts.pop()
            both = sums[-1] + its
            means[-1] = np.inf if np.inf in (means[-1], last) else (means[-1] * sums[-1] + last * its) / both
            sums[-1], counts[-1] = both, counts[-1] + many
    return np.repeat(means, counts)


def _crossing(x: F64, y: F64, reach: float) -> float:
    """Where the line through the points (x, y), y non-decreasing, reaches 0."""
    above = int(np.searchsorted(y, 0.0, "right"))
    if len(x) == 1:
        return float(x[0])
    left = min(max(above - 1, 0), len(x) - 2)
    lowest, highest = x[0] - reach, x[-1] + reach
    if not np.isfinite(y[left + 1]):
        return float(x[left] if np.isfinite(y[left]) else lowest)
    rise, run = y[left + 1] - y[left], x[left + 1] - x[left]
    if rise <= 0:
        return float(lowest if above == 0 else highest if above == len(x) else x[left])
    return float(np.clip(x[left] - y[left] * run / rise, lowest, highest))
