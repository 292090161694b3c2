"""The highest load that a simulated server carries, between the steps of the grid, in few replays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from tuner.engines.base import Judged
from tuner.replay import Curtailment, Replay, Workload

Send = Callable[[Workload, Curtailment | None], Replay]

STEP = 1.0125
"""Loads are tried on a grid of such steps from the trace's own: their traces are made once."""
_REACH = 600
_STRIDE = 48
_GUARD = math.log(0.95)
_SLOPE = 2.5
"""How fast the logarithm of a P99 grows with that of the load, near the limit."""
_CLOSE = 3
_COARSE = 0.35
"""Far below the start the bracket may stay as wide as this share of the way down to it."""
_MOST_REPLAYS = 12


class Loads(Protocol):
    """Loads made from one part of a trace; `start` is the trace's own, `floor` the lowest worth a replay."""

    start: float
    floor: float

    def judge(self, send: Send, load: float) -> Judged:
        """One replay at a load, judged."""
        ...


def highest_load(loads: Loads, send: Send, start: float) -> float:
    """Where the P99 reaches the guarded limit; 0 where even the lowest load fails.

    To about 1% near and above the start, more roughly the further it lies below: what carries far less than
    the best so far need not be known well.

    `send` replays to the end: a margin to aim by is worth more than the time that stopping early saves.
    """
    lowest = math.ceil(math.log(loads.floor / loads.start) / math.log(STEP) - 1e-6)
    step = max(round(math.log(start / loads.start) / math.log(STEP)), lowest)
    first = step
    margins: dict[int, float] = {}
    low: int | None = None
    high: int | None = None
    for _ in range(_MOST_REPLAYS):
        judged = loads.judge(send, loads.start * STEP**step)
        margins[step] = judged.margin
        if judged.passes:
            low = step
        else:
            high = step
        if low is not None and high is not None:
            if high - low <= max(_CLOSE, _COARSE * (first - high)):
                break
            step = _between(low, high, margins)
        elif low is not None:
            step = min(low + _ahead(margins[low], len(margins)), _REACH)
        else:
            assert high is not None
            if high <= lowest:
                return 0.0
            step = max(high - _ahead(margins[high], len(margins)), lowest)
        if step in margins:
            break
    if low is None:
        return 0.0
    share = _share(margins[low], margins[high]) if high is not None else 0.0
    return float(loads.start * STEP ** (low + share * ((high or low) - low)))


def _ahead(margin: float, tried: int) -> int:
    """How many steps to the limit, a little more: the next replay shall be on its other side."""
    if not math.isfinite(margin):
        return _STRIDE
    steps = abs(margin - _GUARD) / (_SLOPE * math.log(STEP))
    return max(min(math.ceil(1.2 * steps) + 1, _STRIDE), tried * tried)


def _between(low: int, high: int, margins: dict[int, float]) -> int:
    middle = low + round(_share(margins[low], margins[high]) * (high - low))
    quarter = (high - low) // 4
    return min(max(middle, low + max(quarter, 1)), high - max(quarter, 1))


def _share(below: float, above: float) -> float:
    """Where between two loads the P99 reaches the guarded limit."""
    if not math.isfinite(above) or above <= below or above <= _GUARD:
        return 0.5
    return min(max((_GUARD - below) / (above - below), 0.0), 1.0)
