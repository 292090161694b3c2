"""The highest load that passes, found with few replays on a grid of 5% steps."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tuner.measure.verdict import GUARD, Judgement

STEP = 1.05
_STRIDES = (8, 8, 28)
_NEAR_STRIDES = (3, 8, 4, 16, 8, 4, 28)
_NEAR_LATER = (3, 4, 8, 16, 28)  # where it is seen to be near after a long stride
_NEAR_BELOW, _NEAR_ABOVE = -0.3, 0.4  # log(P99 / SLO)
_NEAR_OVERLOAD = STEP**8  # of a replay that was stopped early, which has no P99
_MAX_REPLAYS = 24
_REACH = 200  # grid steps from the anchor: a factor of 17,000 either way
_GUESSES = 3
_HALVE_WITHIN = 6  # replays
_REFUTED = 3  # steps: where so much more has passed, what was carried says nothing
_SHY = 0.3  # of a grid step: what a server carried is a little more than its capacity

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
        return round(self.place(rps))

    def place(self, rps: float) -> float:
        """Where a load lies, in grid steps."""
        return math.log(rps / self.anchor_rps) / math.log(STEP)

    def rps(self, step: float) -> float:
        """The load of a step."""
        return float(self.anchor_rps * STEP**step)


def find_capacity(
    measure: Measure,
    grid: LoadGrid,
    start_rps: float,
    *,
    beat_start: bool = False,
    floor_rps: float = 0.0,
    max_replays: int = _MAX_REPLAYS,
    halve: bool = False,
) -> Capacity:
    """Bracket and bisect to one grid step, from `start_rps` up or down.

    Where a server fell behind, the next load is what it carried. Where nothing is known, it is one of the
    strides whose bracket bisection can still close in six replays within a factor 2 of the start (8 and 16
    steps are x1.48 and x2.18) and in nine within a factor 8 (44 steps); where P99 is close to the limit, or a
    replay was stopped early by no more than a little overload, the stride is short. The result is the same
    from every start as long as passing is monotone in the load.

    With `beat_start` a configuration that fails at the start has lost, and the search ends there. No load
    below `floor_rps` is tried. `halve` goes on to half a step where five replays were enough.
    """
    return _Search(measure, grid, floor_rps, max_replays).run(grid.step(start_rps), beat_start, halve)


class _Search:
    """One search; steps are whole but for the last of one that halves."""

    def __init__(self, measure: Measure, grid: LoadGrid, floor_rps: float, max_replays: int) -> None:
        self._measure, self._grid, self._most = measure, grid, max_replays
        self._floor = math.ceil(round(grid.place(floor_rps), 6)) if floor_rps > 0.0 else None
        self._judged: dict[float, Judgement] = {}
        self._low: float | None = None
        self._high: float | None = None
        self._guesses = 0

    def run(self, start: int, beat_start: bool, halve: bool) -> Capacity:
        lowest = start - _REACH
        if self._floor is not None:
            lowest = max(lowest, self._floor)
            start = max(start, lowest)
        self._try(start)
        lost = beat_start and self._low is None
        if not lost:
            self._bracket(start, lowest)
            self._close()
            few = len(self._judged) < min(self._most, _HALVE_WITHIN)
            if halve and few and self._low is not None and self._high is not None:
                self._try((self._low + self._high) / 2)
        return self._found(lost)

    def _room(self) -> bool:
        return len(self._judged) < self._most

    def _try(self, step: float) -> None:
        judgement = self._judged[step] = self._measure(self._grid.rps(step))
        if judgement.passes:
            self._low = step
        else:
            self._high = step

    def _bracket(self, start: int, lowest: int) -> None:
        near = _is_near(self._judged[start])
        strides = _growing(_NEAR_STRIDES if near else _STRIDES)
        while self._room() and (self._low is None or self._high is None):
            edge = self._low if self._low is not None else self._high
            assert edge is not None
            if not near and _is_near(self._judged[edge]):
                near, strides = True, _growing(_NEAR_LATER)
            guess = self._guess(edge) if self._low is None else None
            if guess is not None:
                ahead = max(guess, lowest)
            elif self._low is not None:
                ahead = min(edge + min(next(strides), self._reach()), start + _REACH)
            else:
                ahead = max(edge - next(strides), lowest)
            if ahead in self._judged:
                return
            self._try(ahead)

    def _guess(self, step: float) -> float | None:
        """Below a load that failed: what was carried there, the further below the more guesses were wrong."""
        carried = self._carried(step) if self._guesses < _GUESSES else None
        if carried is None:
            return None
        self._guesses += 1
        return min(carried, step - (2 * self._guesses - 1))

    def _reach(self) -> float:
        """How many steps above the highest load that passed the limit is at most: P99 rises ever faster
        there, so the line through the last two gets to it later.
        """
        if len(self._judged) < 2:
            return math.inf
        below, last = sorted(self._judged)[-2:]
        rise = self._judged[last].margin - self._judged[below].margin
        if not 0.0 < rise < math.inf:
            return math.inf
        return math.ceil((math.log(GUARD) - self._judged[last].margin) * (last - below) / rise) + 1

    def _close(self) -> None:
        """Down to one step between what passes and what fails."""
        while self._low is not None and self._high is not None and self._high - self._low > 1:
            if not self._room():
                return
            self._try(self._between(self._low, self._high))

    def _between(self, low: float, high: float) -> float:
        middle = (low + high) // 2
        guess = self._carried(high) if self._guesses < _GUESSES else None
        if guess is None or guess < low - _REFUTED:
            return middle
        if self._judged[high].overload is not None:  # stopped early: a guess that may be a little out
            if high - low <= _STRIDES[0]:
                return middle
            quarter = (high - low) // 4
            low, high = low + quarter, high - quarter
        self._guesses += 1
        # what was carried is all that can be: the step above it tells whether the search is over
        return min(max(guess, low + 1), high - 1)

    def _carried(self, step: float) -> int | None:
        """The step at which a server that fell behind would have kept up."""
        carried = self._judged[step].carried_rps
        return math.floor(self._grid.place(carried) - _SHY) if carried else None

    def _found(self, lost: bool) -> Capacity:
        judged, low, grid = self._judged, self._low, self._grid
        best = grid.rps(low) if low is not None else 0.0
        return Capacity(
            rps=best,
            bracket_rps=(best, grid.rps(self._high) if self._high is not None else math.inf),
            at=judged[low] if low is not None else judged[min(judged)],
            probes=tuple(Probe(grid.rps(s), j.passes, j.margin) for s, j in judged.items()),
            lost=lost,
        )


def _is_near(judgement: Judgement) -> bool:
    """Whether the capacity seems near: by the P99, or by the overload where a replay was stopped early."""
    if judgement.overload is not None:
        return judgement.overload <= _NEAR_OVERLOAD
    return _NEAR_BELOW <= judgement.margin <= _NEAR_ABOVE


def _growing(strides: tuple[int, ...]) -> Iterator[int]:
    """Steps of the bracket, in the end ever longer."""
    yield from strides
    yield from itertools.accumulate(itertools.repeat(2), operator.mul, initial=2 * strides[-1])
