"""Bridges a simulation to who asked for it: exact curtailment and progress."""

from __future__ import annotations

import math

from tuner.engines.base import Progress
from tuner.replay import Curtailment, OverWatch
from tuner.traces.trace import F64

_TELL_EVERY = 8


class Watch:
    """Follows one simulation; `numbers[i]` is the place in the workload of the simulation's request i."""

    def __init__(
        self,
        numbers: list[int],
        output_tokens: list[int],
        planned: int,
        refused: list[int],
        *,
        stop: Curtailment | None,
        scheduled_s: F64 | None,
        progress: Progress | None,
    ) -> None:
        self._numbers, self._tokens, self._planned = numbers, output_tokens, planned
        self._progress, self._looks = progress, 0
        self._done = len(refused)
        self._watch = OverWatch(stop, planned, scheduled_s) if stop is not None else None
        self._wants_first = stop is not None and math.isfinite(stop.ttft_s)
        if self._watch is not None:
            for number in refused:
                self._watch.done(number, math.inf, False)

    def first(self, request: int, arrival_s: float, at_s: float) -> None:
        if self._wants_first and self._watch is not None:
            self._watch.first(self._numbers[request], at_s - arrival_s)

    def ended(self, request: int, arrival_s: float, first_s: float, at_s: float) -> None:
        self._done += 1
        if self._watch is not None:
            later = self._tokens[request] - 1
            tpot = (at_s - first_s) / later if later else 0.0
            self._watch.done(self._numbers[request], at_s - arrival_s, True, tpot)

    def stop(self, now_s: float) -> bool:
        self._looks += 1
        if self._progress is not None and not self._looks % _TELL_EVERY:
            self._progress(self._done, self._planned)
        return self._watch is not None and self._watch.certain(now_s)
