"""The highest load that passes, found with few replays on a grid of 5% steps."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tuner.measure.verdict import Judgement

STEP = 1.05
_STRIDES = (8, 8, 28)
_NEAR_STRIDES = (3, 8, 4, 16, 8, 4, 28)
_NEAR_BELOW, _NEAR_ABOVE = -0.3, 0.4  # log(P99 / SLO)
_MAX_REPLAYS = 24
_REACH = 200  # grid steps from the anchor: a factor of 17,000 either way

Measure = Callable[[float], Judgement]
"""Replay at a load in requests/s and judge it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One load tried: whether it passed, and the log-ratio of its P99 to the SLO."""

    rps: float
    passes: bool
    margin: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """`rps` is the highest load that passed (0: none), `bracket_rps` that load and the lowest above that
    failed.

    `at` is the judgement at `rps`, or at the lowest load tried where none passed. `lost` says that the search
    ended at its first load because that failed and nothing lower was wanted.
    """

    rps: float
    bracket_rps: tuple[float, float]
    at: Judgement
    probes: tuple[Probe, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class LoadGrid:
    """Loads anchor x 1.05^k: every search on the same trace tries the same loads, whatever its start."""

    anchor_rps: float

    def step(self, rps: float) -> int:
        """The grid step nearest to a load."""
        return round(math.log(rps / self.anchor_rps) / math.log(STEP))

    def rps(self, step: int) -> float:
        """The load of a step."""
        return self.anchor_rps * STEP**step


def find_capacity(
    measure: Measure,
    grid: LoadGrid,
    start_rps: float,
    *,
    beat_start: bool = False,
    floor_rps: float = 0.0,
    max_replays: int = _MAX_REPLAYS,
) -> Capacity:
    """Bracket and bisect to one grid step, from `start_rps` up or down.

    The strides are those whose bracket the bisection can still close in six replays within a factor 2 of the
    start (8 and 16 steps are x1.48 and x2.18) and in nine within a factor 8 (44 steps). Where the P99 at the
    start is close to the limit the first stride is short. The result is the same from every start as long as
    passing is monotone in the load. With `beat_start` a configuration that fails at the start has lost, and
    the search ends there. No load below `floor_rps` is tried.
    """
    judged: dict[int, Judgement] = {}
    order: list[int] = []

    def passes(step: int) -> bool:
        if step not in judged:
            judged[step] = measure(grid.rps(step))
            order.append(step)
        return judged[step].passes

    start = grid.step(start_rps)
    lowest = start - _REACH
    if floor_rps > 0.0:
        lowest = max(lowest, math.ceil(round(math.log(floor_rps / grid.anchor_rps) / math.log(STEP), 6)))
        start = max(start, lowest)
    up = passes(start)
    low: int | None = start if up else None
    high: int | None = None if up else start
    lost = beat_start and not up
    for stride in _strides(judged[start].margin):
        if lost or (low is not None and high is not None) or len(order) >= max_replays:
            break
        if low is not None:
            ahead = min(low + stride, start + _REACH)
        else:
            assert high is not None
            ahead = max(high - stride, lowest)
        if ahead in judged:
            break
        if passes(ahead):
            low = ahead
        else:
            high = ahead
    while low is not None and high is not None and high - low > 1 and len(order) < max_replays:
        middle = (low + high) // 2
        if passes(middle):
            low = middle
        else:
            high = middle
    probes = tuple(Probe(grid.rps(s), judged[s].passes, judged[s].margin) for s in order)
    best = grid.rps(low) if low is not None else 0.0
    return Capacity(
        rps=best,
        bracket_rps=(best, grid.rps(high) if high is not None else math.inf),
        at=judged[low] if low is not None else judged[min(judged)],
        probes=probes,
        lost=lost,
    )


def _strides(margin: float) -> Iterator[int]:
    """Steps of the bracket, ever longer; a margin near the limit says that the capacity is near."""
    strides = _NEAR_STRIDES if _NEAR_BELOW <= margin <= _NEAR_ABOVE else _STRIDES
    yield from strides
    yield from itertools.accumulate(itertools.repeat(2), operator.mul, initial=2 * strides[-1])
