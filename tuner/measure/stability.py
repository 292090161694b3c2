"""Whether a queue was still growing when the replay ended: latencies under the SLO then prove nothing."""

from __future__ import annotations

import math

import numpy as np

from tuner.replay.records import Replay

MIN_REQUESTS = 60
_BEGIN = 1 / 3  # the engine fills before
_SLOPE = 0.015
_SHORTFALL = 0.03
# of the shortfall, times the root of the requests: arrivals at random, answers of any length
_NOISE = 1.1


def backlog_grows(replay: Replay) -> bool:
    """True when, over the last two thirds of an open loop, latency rises and the server falls behind.

    Behind a full server the wait grows by 1 - 1/rho seconds a second, rho being the load as a share of what
    the server can do, and the output tokens that it finishes are what it can do. So both must hold: the
    latency's slope over the arrival times is above 0.015 and significant, and the tokens a second that the
    whole replay offers are at least 3% more than those that came back (more where few requests make that
    noise). Comparing with what is offered over the whole replay, not in that part of it, keeps a burst or a
    lull from being taken for what the server can do. On Poisson arrivals 10% of overload show in a replay of
    1,000 requests, and 5% in four of five.
    """
    if replay.users is not None or len(replay) < MIN_REQUESTS * 3 // 2:
        return False
    scheduled, ok = replay.scheduled_s, replay.ok
    begin, end = float(scheduled[0]), float(scheduled[-1])
    start = begin + _BEGIN * (end - begin)
    late = ok & (scheduled >= start)
    n = int(np.count_nonzero(late))
    if end <= start or n < MIN_REQUESTS:
        return False
    slope, error = _slope(scheduled[late], replay.last_s[late] - scheduled[late])
    if slope < max(_SLOPE, 3.0 * error):
        return False
    with np.errstate(invalid="ignore"):
        back = ok & (replay.last_s >= start) & (replay.last_s <= end)
    work = np.maximum(replay.tokens, 1).astype(np.float64)
    offered = float(work[ok].sum()) / (end - begin)
    served = float(work[back].sum()) / (end - start)
    return offered > served * (1.0 + max(_SHORTFALL, _NOISE / math.sqrt(len(replay))))


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of the least-squares line and its standard error."""
    centred = x - x.mean()
    spread = float(centred @ centred)
    if spread <= 0.0:
        return 0.0, math.inf
    slope = float(centred @ y) / spread
    residual = y - y.mean() - slope * centred
    return slope, math.sqrt(float(residual @ residual) / max(len(x) - 2, 1) / spread)
