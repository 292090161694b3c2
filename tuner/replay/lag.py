"""Whether the client kept pace: a replay that it slowed down says nothing about the server."""

from __future__ import annotations

import math

import numpy as np

from tuner.replay.stop import Curtailment
from tuner.traces.trace import F64

_LEAST_S = 0.010
_MOST_S = 0.100
_SHARE = 0.05


def lag_limit_s(slo_smallest_s: float | None, stop: Curtailment | None = None) -> float:
    """Highest P99 lag of a valid replay: 5% of the smallest SLO, between 10 and 100 ms.

    Without an SLO the limits of `stop` stand in for it; with neither it is 100 ms.
    """
    smallest = slo_smallest_s
    if smallest is None and stop is not None:
        smallest = min(stop.e2e_s, stop.ttft_s, stop.tpot_s)
    if smallest is None:
        smallest = math.inf
    return min(_MOST_S, max(_LEAST_S, _SHARE * smallest))


def lag_fault(lag_s: F64, limit_s: float) -> str | None:
    """Why a replay with these lags is invalid (None: it is not); requests never sent are NaN."""
    lag = lag_s[~np.isnan(lag_s)]
    if not len(lag):
        return None
    rank = max(1, math.ceil(0.99 * len(lag) - 1e-9))
    p99 = float(np.partition(lag, rank - 1)[rank - 1])
    if p99 <= limit_s:
        return None
    was, allowed = p99 * 1000.0, limit_s * 1000.0
    return f"the client was the bottleneck: its P99 lag was {was:.0f} ms, and {allowed:.0f} ms are allowed"
