"""Whether a queue was still growing when the replay ended: latencies under the SLO then prove nothing."""

from __future__ import annotations

import numpy as np

from tuner.replay.records import Replay

BINS = 6
MIN_REQUESTS_A_BIN = 10
# Mann-Kendall: among the 15 pairs of six bins, 11 more rises than falls have p = 0.028 in noise
_TREND = 11
_GROWTH = 1.5
_SHORTFALL = 0.97


def backlog_grows(replay: Replay) -> bool:
    """True when latency still rises and answers fall behind arrivals in the last two thirds of an open loop.

    All three must hold, so that one burst is not taken for overload: the bins' median latency trends upwards,
    it ends at 1.5 times where it began, and fewer than 97% as many requests ended in that part as arrived.
    """
    if replay.users is not None or len(replay) < BINS * MIN_REQUESTS_A_BIN * 3 // 2:
        return False
    scheduled = replay.scheduled_s
    begin, end = scheduled[0], scheduled[-1]
    start = begin + (end - begin) / 3.0
    inside = scheduled >= start
    arrived = int(inside.sum())
    if end <= start or arrived < BINS * MIN_REQUESTS_A_BIN:
        return False
    with np.errstate(invalid="ignore"):
        ended = int(((replay.last_s >= start) & (replay.last_s <= end)).sum())
    if ended >= _SHORTFALL * arrived:
        return False
    latency = replay.e2e_s()[inside]
    medians = [float(np.median(part)) for part in np.array_split(latency, BINS)]
    rises = sum(
        (medians[j] > medians[i]) - (medians[j] < medians[i]) for i in range(BINS) for j in range(i + 1, BINS)
    )
    return rises >= _TREND and medians[-1] >= _GROWTH * medians[0]
