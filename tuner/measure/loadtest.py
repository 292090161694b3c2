"""Load tests of one part of a trace: one replay, the highest load that passes, the most users that pass.

The study, `replay` and `simulate` all measure through here, so that the same configuration on the same part
of the trace gets the same figure whoever asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from tuner.measure.capacity import Capacity, LoadGrid, find_capacity
from tuner.measure.verdict import GUARD, Judgement, curtailment, judge
from tuner.replay.records import Replay, Workload
from tuner.replay.stop import Curtailment
from tuner.spec import SessionMode, Slo
from tuner.traces import NestedLoads, Trace

Send = Callable[[Workload, Curtailment | None], Replay]
"""Offers a workload to a server, real or simulated."""

Told = Callable[[float, Judgement], None]
"""Called with each load tried, in requests/s or users, and its judgement."""

SPAN_OF_SLO = 3.0
"""A replay lasts at least this many times the largest SLO, or a queue could grow unseen."""
ROUNDS_A_USER = 4
"""Requests that each user of a closed loop makes, at the least."""
_KEPT_LOADS = 40
_KEPT_CLOSED = 12
_DEEPEST = 8.0
USERS_TOLERANCE = 1.05
USERS_SERIES = tuple(n * 10**power for power in range(4) for n in (1, 2, 5))
"""Numbers of users that operators compare by: 1, 2, 5, 10, … 5,000."""


@dataclass(frozen=True, slots=True)
class UsersCapacity:
    """`users` is the highest closed-loop number that passed (0: none); `tried` maps numbers to judgements."""

    users: int
    tried: dict[int, Judgement]


class LoadTest:
    """Loads made from one part of a trace, the same for every configuration.

    Args:
        trace: the part of the trace, arrivals from 0.
        slo: what a replay is judged by.
        requests: requests in a replay, at the least.
        seed: of everything random in the loads.
        sessions: whether turns wait for the answer to the turn before.
    """

    def __init__(
        self,
        trace: Trace,
        slo: Slo,
        *,
        requests: int,
        seed: int = 0,
        sessions: SessionMode = SessionMode.RECORDED,
    ) -> None:
        self.slo = slo
        self.requests = requests
        self.seed = seed
        self.trace = trace
        self.causal = sessions is SessionMode.CAUSAL
        self.loads = NestedLoads(
            trace, requests=requests, min_duration_s=SPAN_OF_SLO * slo.largest_s(), seed=seed
        )
        self.grid = LoadGrid(self.loads.natural_rps)
        # one request in a time as long as the SLO: at lower loads nothing waits for anything any more
        longest_s = max(slo.largest_s(), 1e-3)
        self.floor_rps = min(self.loads.natural_rps / _DEEPEST, 1.0 / longest_s)
        # every configuration is tried at loads of the same grid: the traces are made once
        self._offered: dict[float, Trace] = {}
        self._closed: dict[int, Trace] = {}

    def at(self, send: Send, rps: float, *, curtail: bool = True, times: float = GUARD) -> Judgement:
        """One open-loop replay at a load, stopped early only where its P99 is certain to be over `times` the
        SLO."""
        trace = self._trace_at(rps)
        stop = curtailment(self.slo, len(trace), times) if curtail and self.slo.limits() else None
        return judge(send(Workload(trace, causal=self.causal), stop), self.slo)

    def _trace_at(self, rps: float) -> Trace:
        if rps not in self._offered:
            if len(self._offered) >= _KEPT_LOADS:
                del self._offered[next(iter(self._offered))]
            self._offered[rps] = self.loads.at(rps)
        return self._offered[rps]

    def capacity(
        self,
        send: Send,
        start_rps: float | None = None,
        *,
        beat_start: bool = False,
        told: Told = lambda load, judgement: None,
    ) -> Capacity:
        """The highest load that passes, searched from `start_rps` (default: the trace's own rate)."""
        start = start_rps if start_rps is not None else self.loads.natural_rps

        def measure(rps: float) -> Judgement:
            judgement = self.at(send, rps)
            told(rps, judgement)
            return judgement

        return find_capacity(
            measure,
            self.grid,
            start,
            beat_start=beat_start,
            floor_rps=self.floor_rps,
            halve=True,
        )

    def with_users(
        self,
        send: Send,
        users: int,
        *,
        requests: int | None = None,
        curtail: bool = True,
        times: float = GUARD,
    ) -> Judgement:
        """One closed-loop replay: so many users, each sending its next request when its last has ended."""
        n = max(requests or self.requests, ROUNDS_A_USER * users)
        trace = self._closed.get(n)
        if trace is None:
            if len(self._closed) >= _KEPT_CLOSED:
                del self._closed[next(iter(self._closed))]
            trace = NestedLoads(self.trace, requests=n, seed=self.seed).at(self.loads.natural_rps)
            self._closed[n] = trace
        stop = curtailment(self.slo, len(trace), times) if curtail and self.slo.limits() else None
        return judge(send(Workload(trace, users=users), stop), self.slo)

    def users(
        self,
        send: Send,
        start: int,
        *,
        tolerance: float = USERS_TOLERANCE,
        requests: int | None = None,
        told: Told = lambda load, judgement: None,
    ) -> UsersCapacity:
        """The most users that pass, to `tolerance`: along 1, 2, 5, 10, … from `start`, then by bisection."""
        tried: dict[int, Judgement] = {}

        def passes(users: int) -> bool:
            if users not in tried:
                tried[users] = self.with_users(send, users, requests=requests)
                told(users, tried[users])
            return tried[users].passes

        low, high = 0, 0
        rung = max(0, bisect_right(USERS_SERIES, start) - 1)
        while 0 <= rung < len(USERS_SERIES) and USERS_SERIES[rung] not in tried:
            if passes(USERS_SERIES[rung]):
                low = USERS_SERIES[rung]
                rung += 1
            else:
                high = USERS_SERIES[rung]
                rung -= 1
        while low > 0 and high - low > 1 and high / low > tolerance:
            middle = (low + high) // 2
            if passes(middle):
                low = middle
            else:
                high = middle
        return UsersCapacity(low, tried)
