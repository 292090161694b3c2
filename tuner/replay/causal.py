"""Pacing of an open loop whose sessions are causal: a turn waits for the answer to the one before."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from tuner.traces.causal import Turns

_EARLY_S = 0.0002


class TurnPacer:
    """Sends every request when it is due; `scheduled` (seconds since the begin) is moved to the due time.

    `now` gives the seconds since the begin, `send` sends a request, `prepare` builds its body beforehand.
    """

    def __init__(
        self,
        turns: Turns,
        order: Sequence[int],
        scheduled: list[float],
        *,
        now: Callable[[], float],
        send: Callable[[int], None],
        prepare: Callable[[int], None],
    ) -> None:
        self._turns, self._scheduled = turns, scheduled
        self._now, self._send, self._prepare = now, send, prepare
        own = set(order)
        self._due = [(scheduled[index], index) for index in turns.opening if index in own]
        heapify(self._due)
        self._timer: asyncio.TimerHandle | None = None
        self._armed_s = math.inf

    def begin(self) -> None:
        """Start with the sessions' first turns."""
        self._arm()

    def ended(self, index: int, ended_s: float) -> None:
        """A request ended, well or not: its session's next turn can come."""
        turn = self._turns.next[index]
        if turn >= 0:
            self._scheduled[turn] = due = self._turns.due_s(turn, self._scheduled[turn], ended_s)
            heappush(self._due, (due, turn))
            self._arm()

    def stop(self) -> None:
        """Send nothing more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if not self._due or self._due[0][0] >= self._armed_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        at, index = self._due[0]
        self._armed_s = at
        self._prepare(index)
        # whole milliseconds, rounded up, as for recorded sessions
        wait = max(0.0, math.ceil((at - self._now()) * 1000.0) / 1000.0)
        self._timer = asyncio.get_running_loop().call_later(wait, self._pace)

    def _pace(self) -> None:
        self._armed_s = math.inf
        while self._due and self._due[0][0] - self._now() <= _EARLY_S:
            self._send(heappop(self._due)[1])
        self._arm()
