"""Exact curtailment: a replay stops the moment that its P99 can no longer meet the SLO.

With n requests planned, the nearest-rank P99 is above the limit exactly when floor(n/100) + 1 requests are
over it, those still running past the limit included. Nothing is lost by stopping there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.traces.trace import F64


@dataclass(frozen=True, slots=True)
class Curtailment:
    """Limits in seconds (infinity: none) for n planned requests, `max_over` of which may be over each."""

    e2e_s: float
    ttft_s: float
    tpot_s: float
    max_over: int

    @classmethod
    def at(cls, limits: dict[str, float], requests: int) -> Curtailment:
        """Curtailment for a P99 within `limits` (by metric name, seconds) over so many planned requests."""
        return cls(
            e2e_s=limits.get("e2e", math.inf),
            ttft_s=limits.get("ttft", math.inf),
            tpot_s=limits.get("tpot", math.inf),
            max_over=requests // 100,
        )


class OverWatch:
    """Counts requests over the limits while a replay runs.

    `scheduled_s` (ascending) lets requests that are still running past a limit count; a closed loop has none.
    """

    def __init__(self, rule: Curtailment, requests: int, scheduled_s: F64 | None = None) -> None:
        self._rule = rule
        self._scheduled = scheduled_s.tolist() if scheduled_s is not None else []
        self._e2e, self._ttft, self._tpot = _Counted(requests), _Counted(requests), _Counted(requests)
        self._begun, self._ended = bytearray(requests), bytearray(requests)
        self._next_e2e = self._next_ttft = 0

    @property
    def needs_first(self) -> bool:
        """Whether there is a limit on the time to the first token."""
        return self._rule.ttft_s < math.inf

    def first(self, index: int, ttft_s: float) -> None:
        """Request `index` got its first token, `ttft_s` after its scheduled time."""
        self._begun[index] = 1
        if ttft_s > self._rule.ttft_s:
            self._ttft.mark(index)

    def done(self, index: int, e2e_s: float, ok: bool, tpot_s: float = 0.0) -> None:
        """Request `index` ended: answered in full (`ok`) or failed, which is over every limit."""
        self._ended[index] = 1
        if not ok or e2e_s > self._rule.e2e_s:
            self._e2e.mark(index)
        if not ok or tpot_s > self._rule.tpot_s:
            self._tpot.mark(index)
        if not ok:
            self._ttft.mark(index)

    def certain(self, now_s: float) -> bool:
        """Whether, at `now_s`, the P99 of some metric is over its limit whatever comes."""
        self._next_e2e = self._late(self._next_e2e, now_s - self._rule.e2e_s, self._ended, self._e2e)
        self._next_ttft = self._late(self._next_ttft, now_s - self._rule.ttft_s, self._begun, self._ttft)
        return max(self._e2e.over, self._ttft.over, self._tpot.over) > self._rule.max_over

    def _late(self, start: int, before_s: float, seen: bytearray, counted: _Counted) -> int:
        index, scheduled = start, self._scheduled
        while index < len(scheduled) and scheduled[index] < before_s:
            if not seen[index]:
                counted.mark(index)
            index += 1
        return index


class _Counted:
    """How many requests are over one limit, each counted once."""

    def __init__(self, requests: int) -> None:
        self._marked = bytearray(requests)
        self.over = 0

    def mark(self, index: int) -> None:
        if not self._marked[index]:
            self._marked[index] = 1
            self.over += 1
