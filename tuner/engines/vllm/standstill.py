"""When is a silent server hung? When it neither writes a line nor uses the CPU.

Compilers at work (FlashInfer's nvcc, minutes without a line) are progress. An idle tree is not quite at zero:
event loops wake up, so less than `IDLE_SHARE` of one core counts as idle.
"""

from __future__ import annotations

from collections.abc import Callable

IDLE_SHARE = 0.05


class Standstill:
    """Feed it readings; `idle_s` is how long nothing has moved, `silent_s` how long no line has come.

    `cpu_s` tells the tree's CPU time so far; it is asked once a second, for it reads all of /proc.
    """

    def __init__(self, now_s: float, cpu_s: Callable[[], float]) -> None:
        self._ask = cpu_s
        self._moved_s = self._spoke_s = self._window_s = now_s
        self._cpu_s = 0.0
        self._now_s = now_s

    def see(self, now_s: float, *, spoke: bool) -> None:
        """One reading: the time, and whether a line has come."""
        self._now_s = now_s
        if spoke:
            self._spoke_s = self._moved_s = now_s
        if (elapsed := now_s - self._window_s) >= 1.0:
            cpu_s = self._ask()
            if cpu_s - self._cpu_s >= IDLE_SHARE * elapsed:
                self._moved_s = now_s
            self._window_s, self._cpu_s = now_s, cpu_s

    @property
    def idle_s(self) -> float:
        """Seconds without a line and without CPU time."""
        return self._now_s - self._moved_s

    @property
    def silent_s(self) -> float:
        """Seconds without a line."""
        return self._now_s - self._spoke_s
