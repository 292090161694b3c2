"""Two configurations compared by replays of the same workload, request by request."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.measure.bootstrap import DRAWS, block_bootstrap, block_length
from tuner.measure.percentile import nearest_rank
from tuner.replay.records import Replay
from tuner.traces.trace import F64


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the second replay's latencies stand to the first's.

    `ratio` is the second's P99 over the first's (below 1: the second is faster; NaN where both are infinite),
    `interval` its bootstrap interval. `faster` is the share of the requests that the second answers sooner,
    ties counted half. `block` requests were drawn together.
    """

    metric: str
    p99_s: tuple[float, float]
    ratio: float
    interval: tuple[float, float]
    faster: float
    confidence: float
    requests: int
    block: int

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.interval[0] > 1.0 or self.interval[1] < 1.0


def compare(
    first: Replay,
    second: Replay,
    *,
    metric: str = "e2e",
    confidence: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare a metric (`e2e`, `ttft` or `tpot`) of two replays of the same workload.

    Raises:
        ValueError: not of the same requests, or one that was stopped early.
    """
    if first.stopped or second.stopped:
        raise ValueError("a replay that was stopped early has no P99 to compare")
    if len(first) != len(second) or not (first.output_tokens == second.output_tokens).all():
        raise ValueError("only replays of the same workload can be compared request by request")
    latencies = first.metric_s(metric), second.metric_s(metric)
    block = block_length(latencies)
    drawn = block_bootstrap(latencies, block=block, draws=draws, seed=seed)
    p99 = nearest_rank(latencies[0], 0.99), nearest_rank(latencies[1], 0.99)
    before, after = latencies
    sooner = np.count_nonzero(after < before) + 0.5 * np.count_nonzero(after == before)
    return Comparison(
        metric=metric,
        p99_s=p99,
        ratio=float(_ratios(np.array([p99]))[0]) if not math.isinf(min(p99)) else math.nan,
        interval=interval(_ratios(drawn), confidence),
        faster=float(sooner) / len(first),
        confidence=confidence,
        requests=len(first),
        block=block,
    )


def interval(drawn: F64, confidence: float = 0.95) -> tuple[float, float]:
    """The percentile interval of a statistic's draws, by order statistics: infinities may be among them."""
    tail = (1.0 - confidence) / 2.0
    return nearest_rank(drawn, tail), nearest_rank(drawn, 1.0 - tail)


def _ratios(p99: F64) -> F64:
    """Second column over first; 1 where both are infinite or 0, which tells nothing."""
    first, second = p99[:, 0], p99[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = second / first
    return np.where(first == second, 1.0, ratios)
