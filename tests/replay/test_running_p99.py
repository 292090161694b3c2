"""The P99 of a replay while it runs."""

from __future__ import annotations

import math

from even_traces import even_trace as make_trace

from tuner.replay import Status, Workload
from tuner.replay.columns import Columns
from tuner.replay.running import tell_latency


class Seen:
    def __init__(self) -> None:
        self.p99_s: list[float] = []

    def __call__(self, done: int, planned: int) -> None:
        pass

    def latency(self, p99_s: float) -> None:
        self.p99_s.append(p99_s)


def test_it_is_the_nearest_rank_over_what_has_ended_and_failures_are_infinite() -> None:
    columns, seen = Columns(Workload(make_trace(400))), Seen()
    tell_latency(seen, columns)
    assert seen.p99_s == [], "nothing has ended"
    for index in range(200):
        columns.last[index] = columns.scheduled[index] + 1.0 + index / 100
        columns.status[index] = int(Status.OK)
    tell_latency(seen, columns)
    assert math.isclose(seen.p99_s[-1], 2.97)
    columns.status[5] = columns.status[6] = int(Status.HTTP_ERROR)
    tell_latency(seen, columns)
    assert math.isclose(seen.p99_s[-1], 2.99)
    columns.status[7] = int(Status.REJECTED)
    tell_latency(seen, columns)
    assert seen.p99_s[-1] == math.inf


def test_a_plain_callback_is_left_alone() -> None:
    tell_latency(lambda done, planned: None, Columns(Workload(make_trace(4))))
    tell_latency(None, Columns(Workload(make_trace(4))))
