"""The P99 of a replay while it runs, for who watches."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from tuner.replay.columns import Columns
from tuner.replay.records import Status

_MOST = 20_000
"""Above so many requests a look takes milliseconds, which sending needs more."""


@runtime_checkable
class SeesLatency(Protocol):
    """A progress callback that also wants to know the P99 so far."""

    def latency(self, p99_s: float) -> None:
        """The nearest-rank P99 of E2E in seconds over the requests that have ended; infinite where more than
        1% of them failed.
        """


def tell_latency(progress: object, columns: Columns) -> None:
    """Tell the P99 so far to a callback that wants to know it."""
    if isinstance(progress, SeesLatency) and len(columns.last) <= _MOST:
        status = np.asarray(columns.status)
        with np.errstate(invalid="ignore"):
            e2e = np.asarray(columns.last) - np.asarray(columns.scheduled)
        ended = np.where(status == Status.OK, e2e, np.inf)[status != Status.UNFINISHED]
        if len(ended):
            rank = max(1, -(-99 * len(ended) // 100)) - 1
            progress.latency(float(np.partition(ended, rank)[rank]))
