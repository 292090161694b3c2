"""What "load" means in a study: requests a second of the trace's arrivals, or users in a closed loop."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Protocol, Self

from tuner.measure import GUARD, Capacity, Judgement, LoadGrid, achieved, find_capacity
from tuner.measure.loadtest import LoadTest, Send
from tuner.spec import LoadMode, TuneSpec
from tuner.traces import Trace

_FIRST_USERS = 16


class Offer(Protocol):
    """Loads made from one window of the trace, on a grid of 5% steps.

    `start` is where a search without an incumbent begins: it depends on the trace only. Below `floor` a load
    is not replayed: the server is idle there, and lower loads would only last longer.
    """

    test: LoadTest
    grid: LoadGrid
    start: float
    floor: float

    def snap(self, load: float) -> float:
        """The load that is really replayed for one asked for."""
        ...

    def judge(self, send: Send, load: float) -> Judgement:
        """One replay at a load."""
        ...

    def throughput_rps(self, capacity: Capacity) -> float:
        """Requests a second at the capacity."""
        ...

    def up_to(self, times: float) -> Self:
        """The same loads, replays stopped only where the P99 is sure to be over so many times the SLO."""
        ...


class RateOffer:
    """Open loop: loads are requests a second."""

    def __init__(self, trace: Trace, spec: TuneSpec) -> None:
        self._times = GUARD
        self.test = LoadTest(trace, spec.slo, requests=spec.requests, seed=spec.seed, sessions=spec.sessions)
        self.grid = self.test.grid
        self.start = self.test.loads.natural_rps
        self.floor = self.test.floor_rps

    def snap(self, load: float) -> float:
        return load

    def judge(self, send: Send, load: float) -> Judgement:
        return self.test.at(send, load, times=self._times)

    def throughput_rps(self, capacity: Capacity) -> float:
        return capacity.rps

    def up_to(self, times: float) -> Self:
        other = copy(self)
        other._times = times
        return other


class UserOffer:
    """Closed loop: loads are users, whole numbers nearest to the grid's steps."""

    def __init__(self, trace: Trace, spec: TuneSpec) -> None:
        self._times = GUARD
        self.test = LoadTest(trace, spec.slo, requests=spec.requests, seed=spec.seed, sessions=spec.sessions)
        self.grid = LoadGrid(1.0)
        self.start = float(_FIRST_USERS)
        self.floor = 1.0

    def snap(self, load: float) -> float:
        return float(max(1, round(load)))

    def judge(self, send: Send, load: float) -> Judgement:
        return self.test.with_users(send, round(load), times=self._times)

    def throughput_rps(self, capacity: Capacity) -> float:
        return achieved(capacity.at.replay)[0] if capacity.rps > 0 else 0.0

    def up_to(self, times: float) -> Self:
        other = copy(self)
        other._times = times
        return other


OFFERS: dict[LoadMode, Callable[[Trace, TuneSpec], Offer]] = {
    LoadMode.RATE: RateOffer,
    LoadMode.USERS: UserOffer,
}


def make_offer(trace: Trace, spec: TuneSpec) -> Offer:
    """The loads that a job asks for, made from one window of the trace."""
    return OFFERS[spec.load](trace, spec)


def search(
    offer: Offer, judge: Callable[[float], Judgement], start: float, *, beat_start: bool = False
) -> Capacity:
    """The highest load that passes; `judge` replays at a load. No load is replayed twice."""
    seen: dict[float, Judgement] = {}

    def measure(load: float) -> Judgement:
        real = offer.snap(load)
        if real not in seen:
            seen[real] = judge(real)
        return seen[real]

    return find_capacity(measure, offer.grid, start, beat_start=beat_start, floor_rps=offer.floor)
