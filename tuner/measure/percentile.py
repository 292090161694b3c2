"""P99 by nearest rank over all offered requests, and its distribution-free interval."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tuner.traces.trace import F64

MIN_REQUESTS = 368
"""Fewest requests for a finite two-sided 95% interval of a P99: the smallest n with 0.99^n <= 0.025."""


def nearest_rank(values: F64, q: float) -> float:
    """The q-quantile by nearest rank: the ceil(q n)-th smallest value. Infinities count; NaN for no
    values.
    """
    n = len(values)
    if n == 0:
        return math.nan
    # the tolerance keeps 0.99 * 100 from becoming rank 100 by rounding
    rank = max(1, math.ceil(q * n - 1e-9))
    return float(np.partition(values, rank - 1)[rank - 1])


@lru_cache(maxsize=256)
def interval_ranks(n: int, q: float = 0.99, confidence: float = 0.95) -> tuple[int, int]:
    """Ranks (1-based) of the order statistics that enclose the q-quantile with at least `confidence`.

    Equal tails of the binomial distribution (Conover, Practical Nonparametric Statistics, section 3.2). Rank
    0 stands for "no lower bound" and n + 1 for "no upper bound".
    """
    alpha = (1.0 - confidence) / 2.0
    log_q, log_p = math.log(q), math.log1p(-q)
    cumulative, lower, upper = 0.0, 0, n + 1
    for k in range(n + 1):
        log_term = (
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_q + (n - k) * log_p
        )
        cumulative += math.exp(log_term)
        if cumulative <= alpha:
            lower = k + 1
        if cumulative >= 1.0 - alpha:
            upper = k + 1
            break
    return lower, upper


def p99_interval(values: F64, confidence: float = 0.95) -> tuple[float, float]:
    """Order-statistic interval of the P99; 0 or infinity where there are too few values for a bound."""
    n = len(values)
    if n == 0:
        return 0.0, math.inf
    lower, upper = interval_ranks(n, 0.99, confidence)
    ordered = np.sort(values)
    return (
        float(ordered[lower - 1]) if lower >= 1 else 0.0,
        float(ordered[upper - 1]) if upper <= n else math.inf,
    )
