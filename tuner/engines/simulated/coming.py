"""Causal sessions in virtual time: which turn comes next, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heappop, heappush

from tuner.traces.causal import Turns


class Coming:
    """Requests that are due, the earliest `first`. `arrival_s` (by request) is moved to when each came."""

    def __init__(self, turns: Turns, arrival_s: list[float]) -> None:
        self._turns, self._arrival = turns, arrival_s
        self._heap = [(arrival_s[request], request) for request in turns.opening]  # ascending: a heap

    @property
    def first(self) -> int:
        """The request that is due next."""
        return self._heap[0][1]

    @property
    def next_s(self) -> float:
        """When it is due; infinity for none."""
        return self._heap[0][0] if self._heap else math.inf

    def taken(self) -> float:
        """The first was admitted; when the next is due."""
        heappop(self._heap)
        return self.next_s

    def ended(self, requests: Iterable[int], now_s: float) -> float:
        """Answers ended, and what follows them will come; when the next is due."""
        turns, arrival = self._turns, self._arrival
        for request in requests:
            turn = turns.next[request]
            if turn >= 0:
                arrival[turn] = turns.due_s(turn, arrival[turn], now_s)
                heappush(self._heap, (arrival[turn], turn))
        return self.next_s
