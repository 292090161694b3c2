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
    flat = np.array(y.reshape(-1, y.shape[-1]))
    for row in np.flatnonzero((flat[:, 1:] < flat[:, :-1]).any(axis=1)):
        flat[row] = isotonic(flat[row])
    return np.asarray(np.exp(_crossings(x, flat, np.log(reach))).reshape(y.shape[:-1]), np.float64)


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


def _crossings(x: F64, y: F64, reach: float) -> F64:
    """Where the line through the points (x, y) of each row, y non-decreasing, reaches 0."""
    if len(x) == 1:
        return np.full(len(y), x[0])
    above = (y <= 0.0).sum(axis=1)
    left = np.clip(above - 1, 0, len(x) - 2)
    rows = np.arange(len(y))
    low, high = y[rows, left], y[rows, left + 1]
    lowest, highest = x[0] - reach, x[-1] + reach
    flat = np.where(above == 0, lowest, np.where(above == len(x), highest, x[left]))
    with np.errstate(invalid="ignore", divide="ignore"):
        line = np.clip(x[left] - low * (x[left + 1] - x[left]) / (high - low), lowest, highest)
    found = np.where(high > low, line, flat)
    found = np.where(np.isfinite(high), found, np.where(np.isfinite(low), x[left], lowest))
    return np.asarray(found, np.float64)
