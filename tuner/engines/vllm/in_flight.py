"""What a replay has under way, from its schedule and its progress."""

from __future__ import annotations

import time

import numpy as np

from tuner.replay import Workload


class InFlight:
    """Call it to know whether any request is unanswered; a closed loop always has one."""

    def __init__(self, workload: Workload) -> None:
        self._arrivals = None if workload.users is not None else workload.trace.arrival_s
        self._began_s: float | None = None
        self._ended = 0

    def ended(self, count: int) -> None:
        """So many requests have ended; the first call says that the replay has begun."""
        self._ended = count
        if self._began_s is None:
            self._began_s = time.monotonic()

    def __call__(self) -> bool:
        if self._began_s is None or self._arrivals is None or not len(self._arrivals):
            return True
        elapsed = time.monotonic() - self._began_s + float(self._arrivals[0])
        return int(np.searchsorted(self._arrivals, elapsed, side="right")) > self._ended
