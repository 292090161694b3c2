"""The verdict on one replay: PASS, FAIL, CANNOT TELL or INVALID, and the figures behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tuner.measure.percentile import MIN_REQUESTS, nearest_rank, p99_interval
from tuner.measure.stability import backlog_grows, carried_rps, overload
from tuner.replay.records import Replay
from tuner.replay.stop import Curtailment
from tuner.spec import Slo

GUARD = 0.95
"""PASS needs P99 <= GUARD x SLO, so that noise at the boundary is not what gets chosen."""


class Verdict(StrEnum):
    """What a replay says about the SLO."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    CANNOT_TELL = "CANNOT TELL"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One replay judged.

    `passes` is the point verdict that the search goes by (P99 within the guarded SLO and no growing backlog);
    `margin` is the largest log(P99 / limit) over the metrics; `p99_s` and `interval_s` are those of that
    metric. `carried_rps` is what the server carried while it fell behind, None where it kept up. `overload`
    is how many times that a replay seems to have offered, None where it was not stopped early.
    """

    verdict: Verdict
    passes: bool
    offered_rps: float
    margin: float
    metric: str
    p99_s: float
    interval_s: tuple[float, float]
    attainment: float
    requests: int
    failed: int
    unstable: bool
    reason: str
    replay: Replay
    carried_rps: float | None = None
    overload: float | None = None


def guarded(slo: Slo, times: float = GUARD) -> dict[str, float]:
    """The limits that a passing replay stays within, in seconds by metric."""
    return {metric: times * limit for metric, limit in slo.limits().items()}


def curtailment(slo: Slo, requests: int, times: float = GUARD) -> Curtailment:
    """When a replay of so many requests can be stopped: its P99 cannot be within `times` the SLO any more."""
    return Curtailment.at(guarded(slo, times), requests)


def judge(replay: Replay, slo: Slo) -> Judgement:
    """Judge a replay against the SLO. A curtailed replay is FAIL: its verdict was certain."""
    columns = {metric: replay.metric_s(metric) for metric in slo.limits()}
    worst, margin, p99 = "e2e", -math.inf, nearest_rank(replay.e2e_s(), 0.99)
    for metric, limit in slo.limits().items():
        value = nearest_rank(columns[metric], 0.99)
        this = math.log(max(value, 1e-9) / limit) if value < math.inf else math.inf
        if this >= margin:
            worst, margin, p99 = metric, this, value
    intervals = {metric: p99_interval(values) for metric, values in columns.items()}
    interval = intervals.get(worst) or p99_interval(replay.e2e_s())
    unstable = backlog_grows(replay)
    passes = (
        not replay.stopped and not unstable and margin <= math.log(GUARD) and replay.invalid_reason is None
    )
    verdict, reason = _verdict(replay, passes, unstable, intervals, guarded(slo), worst)
    return Judgement(
        verdict=verdict,
        passes=passes,
        offered_rps=replay.offered_rps,
        margin=margin,
        metric=worst,
        p99_s=p99,
        interval_s=interval,
        attainment=attainment(replay, slo),
        requests=len(replay),
        failed=int((~replay.ok).sum()),
        unstable=unstable,
        reason=reason,
        replay=replay,
        carried_rps=carried_rps(replay) if unstable or replay.stopped else None,
        overload=overload(replay) if replay.stopped else None,
    )


def attainment(replay: Replay, slo: Slo) -> float:
    """Share of the offered requests that meet every limit."""
    return float(within(replay, slo).mean()) if len(replay) else 0.0


def within(replay: Replay, slo: Slo) -> NDArray[np.bool_]:
    """Which of the offered requests meet every limit."""
    good = replay.ok.copy()
    for metric, limit in slo.limits().items():
        good &= replay.metric_s(metric) <= limit
    return good


def _verdict(
    replay: Replay,
    passes: bool,
    unstable: bool,
    intervals: Mapping[str, tuple[float, float]],
    limits: Mapping[str, float],
    worst: str,
) -> tuple[Verdict, str]:
    if replay.invalid_reason is not None:
        return Verdict.INVALID, replay.invalid_reason
    if replay.stopped:
        limit = limits.get(worst, math.inf)
        return Verdict.FAIL, f"more than 1% of the requests are over {limit:.4g} s ({worst}); stopped there"
    if unstable:
        return Verdict.FAIL, "the backlog was still growing when the window ended"
    if not limits:
        return Verdict.PASS, "no SLO given"
    for metric, limit in limits.items():
        if intervals[metric][0] > limit:
            return Verdict.FAIL, f"P99 of {metric} is over {limit:.4g} s with 95% confidence"
    # every limit has to hold: a metric further from its limit can still have the wider interval
    open_metrics = [metric for metric, limit in limits.items() if intervals[metric][1] > limit]
    if passes and not open_metrics:
        names = " and ".join(f"{metric} within {limit:.4g} s" for metric, limit in limits.items())
        return Verdict.PASS, f"P99 of {names} with 95% confidence"
    n = len(replay)
    if n < MIN_REQUESTS:
        return (
            Verdict.CANNOT_TELL,
            f"{n} requests are too few for a bound on the P99 ({MIN_REQUESTS} are needed)",
        )
    metric = worst if worst in open_metrics else open_metrics[0]
    low, high = intervals[metric]
    return (
        Verdict.CANNOT_TELL,
        f"the interval {low:.4g} to {high:.4g} s straddles {limits[metric]:.4g} s ({metric})",
    )
