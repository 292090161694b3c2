"""When is a silent server hung? When it neither writes a line nor wants the CPU or the disk.

Compilers at work (FlashInfer's nvcc, minutes without a line) are progress, and so are weights that come
slowly from a network disk, or processes that an overloaded machine does not let run. An idle tree is not
quite at zero: event loops wake up, so less than `IDLE_SHARE` of one core counts as idle, and one moment of
wanting to run does too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

IDLE_SHARE = 0.05


class Activity(NamedTuple):
    """Of a process tree: CPU time so far, and whether one is runnable or waits for the disk just now."""

    cpu_s: float
    wants: bool


class Standstill:
    """Feed it readings; `idle_s` is how long nothing has moved, `silent_s` how long no line has come.

    `activity` is asked once a second, for it reads all of /proc.
    """

    def __init__(self, now_s: float, activity: Callable[[], Activity]) -> None:
        self._ask = activity
        self._moved_s = self._spoke_s = self._asked_s = self._now_s = now_s
        self._last = Activity(0.0, False)

    def see(self, now_s: float, *, spoke: bool) -> None:
        """One reading: the time, and whether a line has come."""
        self._now_s = now_s
        if spoke:
            self._spoke_s = self._moved_s = now_s
        if (elapsed := now_s - self._asked_s) >= 1.0:
            now, last = self._ask(), self._last
            if now.cpu_s - last.cpu_s >= IDLE_SHARE * elapsed or (now.wants and last.wants):
                self._moved_s = now_s
            self._asked_s, self._last = now_s, now

    @property
    def idle_s(self) -> float:
        """Seconds without a line and without activity."""
        return self._now_s - self._moved_s

    @property
    def silent_s(self) -> float:
        """Seconds without a line."""
        return self._now_s - self._spoke_s
