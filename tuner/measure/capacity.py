"""The highest load that passes, found with few replays on a grid of 5% steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.measure.verdict import Judgement

STEP = 1.05
_FIRST_STRIDE = 6  # about a third more load
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
    max_replays: int = _MAX_REPLAYS,
) -> Capacity:
    """Bracket and bisect to one grid step, from `start_rps` up or down.

    With `beat_start` a configuration that fails at the start has lost, and the search ends there.
    """
    judged: dict[int, Judgement] = {}
    order: list[int] = []

    def passes(step: int) -> bool:
        if step not in judged:
            judged[step] = measure(grid.rps(step))
            order.append(step)
        return judged[step].passes

    start = grid.step(start_rps)
    floor, ceiling = start - _REACH, start + _REACH
    low: int | None = None
    high: int | None = None
    stride = _FIRST_STRIDE
    if passes(start):
        low = start
        while high is None and len(order) < max_replays and low < ceiling:
            ahead = min(low + stride, ceiling)
            stride *= 2
            if passes(ahead):
                low = ahead
            else:
                high = ahead
    else:
        high = start
        while not beat_start and low is None and len(order) < max_replays and high > floor:
            below = max(high - stride, floor)
            stride *= 2
            if passes(below):
                low = below
            else:
                high = below
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
        lost=beat_start and low is None,
    )
