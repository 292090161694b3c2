"""Loads of any size from one trace, nested: all that arrives at a lower load arrives at a higher one too.

The stream is made of layers. Layer 0 is the trace, repeated for ever; every further layer is the same,
shifted in time at random. A session in layer c draws u in [c, c + 1), and a load keeps the sessions below a
bar: whole layers, and a random part of the sessions of the last one. Copies keep the bursts that thinning or
compressing would change, random shifts keep them from falling together.

The bar is the lowest at which the requests asked for arrive within the time that the load gives them. So
the requests that are sent come at the rate that was asked for even where a trace swings, and the bar can only
rise with the load, which keeps loads nested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import BadRequest
from tuner.traces.dispersion import AT_ONCE_S, dispersion
from tuner.traces.trace import F64, I64, Trace

MAX_REQUESTS = 200_000
MIN_SHARE, MAX_SHARE = 1e-5, 1e5
"""The loads that can be made, as shares of the trace's mean rate."""
_SLACK = 1 + 1e-12


@dataclass(frozen=True, slots=True)
class _Picked:
    """Requests of the stream: when, which of the trace, and in which copy of it (0: the trace itself)."""

    at_s: F64
    request: I64
    copy: I64

    def rows(self, rows: Any) -> _Picked:
        return _Picked(self.at_s[rows], self.request[rows], self.copy[rows])


class NestedLoads:
    """The trace at any load (requests a second).

    Each result holds `planned(rps)` requests: max(`requests`, ceil(`min_duration_s` * rps)), at most
    MAX_REQUESTS. `session` is the same number for the same copy of a session at every load, so that (session,
    turn) can be compared; it is dense only within the trace itself. Blocks that one session alone has are
    renamed in copies, blocks that several sessions share stay shared. The record in `source.changes` says in
    `begins_s` at what time of the stream, which is the same for all loads, a result begins. Deterministic by
    `seed`, whatever order the loads are asked in.
    """

    def __init__(
        self, trace: Trace, *, requests: int = 1000, min_duration_s: float = 0.0, seed: int = 0
    ) -> None:
        if not len(trace):
            raise BadRequest("the trace has no requests", "give a trace with requests")
        self._trace = trace
        self._requests = min(max(2, requests), MAX_REQUESTS)
        self._min_duration_s = min_duration_s
        self._seed = seed
        at_once = trace.duration_s < AT_ONCE_S
        self._mean_rps = float(len(trace)) if at_once else (len(trace) - 1) / trace.duration_s
        self._period_s = len(trace) / self._mean_rps
        self._arrival = trace.arrival_s - trace.arrival_s[0]
        self._sessions = int(trace.session.max()) + 1
        begin = np.full(self._sessions, np.inf)
        np.minimum.at(begin, trace.session, self._arrival)
        self._begin = begin[trace.session]
        self._private, self._first_free = _private_blocks(trace)
        self._private_count = int(self._private.max(initial=-1)) + 1
        self._before = dispersion(trace.arrival_s)
        self.natural_rps = self._natural_rps()
        """The rate at which `at` gives the trace as it is: that of its first requests, one replay of them.
        Where these arrive at once, the trace's mean rate, as if it lasted 1 s where all do.
        """

    def planned(self, rps: float) -> int:
        """How many requests a load has."""
        lasting = math.ceil(self._min_duration_s * rps / _SLACK)
        return min(max(self._requests, lasting), MAX_REQUESTS)

    def at(self, rps: float) -> Trace:
        """The first `planned(rps)` requests of the stream at `rps`, arrivals from 0.

        Raises:
            BadRequest: not a load, or outside MIN_SHARE to MAX_SHARE of the trace's mean rate.
        """
        if not (math.isfinite(rps) and rps > 0):
            raise BadRequest(f"a load of {rps:g} requests/s", "give a load above 0")
        if not MIN_SHARE <= rps / self._mean_rps <= MAX_SHARE:
            what = f"a load of {rps:g} requests/s cannot be made of a trace of {self._mean_rps:g} requests/s"
            raise BadRequest(what, "change the trace's pace first")
        wanted = self.planned(rps)
        picked, bar = self._pick(rps, wanted)
        return self._materialise(picked, rps, bar)

    def _natural_rps(self) -> float:
        n = len(self._trace)
        rounds, index = divmod(self._requests - 1, n)
        last_s = rounds * self._period_s + float(self._arrival[index])
        if last_s < AT_ONCE_S:
            return self._mean_rps
        if last_s >= self._min_duration_s:
            return (self._requests - 1) / last_s
        return len(self._layer_until(0, self._min_duration_s).at_s) / self._min_duration_s

    def _pick(self, rps: float, wanted: int) -> tuple[_Picked, float]:
        """The requests of a load, and its bar."""
        span_s = (self._requests - 1) / rps
        if self._min_duration_s > span_s:
            span_s = min(self._min_duration_s, wanted / rps)
        parts: list[_Picked] = []
        missing, layer = wanted, 0
        while True:
            part = self._layer_until(layer, span_s * _SLACK)
            if len(part.at_s) >= missing:
                break
            parts.append(part)
            missing -= len(part.at_s)
            layer += 1
        bar = float(layer + 1)
        if layer or rps < self.natural_rps / _SLACK:
            draws = self._draws(part)
            highest = np.partition(draws, missing - 1)[missing - 1]
            bar = layer + float(highest)
            part = part.rows(draws <= highest)
        parts.append(part)
        picked = _Picked(
            np.concatenate([part.at_s for part in parts]),
            np.concatenate([part.request for part in parts]),
            np.concatenate([part.copy for part in parts]),
        )
        return picked.rows(np.argsort(picked.at_s, kind="stable")[:wanted]), bar

    def _layer_until(self, layer: int, span_s: float) -> _Picked:
        """What arrives in one whole layer up to `span_s`.

        The shift turns the trace's order round: requests from `first` on come first. A session that the shift
        carries over the period's end goes on in the next period; at the stream's start, sessions that began
        before it are met in the middle.
        """
        arrival, period_s, n = self._arrival, self._period_s, len(self._arrival)
        shift = float(_uniform(self._seed, np.array([layer], np.uint64))[0]) * period_s if layer else 0.0
        first = int(np.searchsorted(arrival, period_s - shift))
        rounds = int(span_s // period_s)
        rest_s = span_s - rounds * period_s
        rest = int(np.searchsorted(arrival, period_s - shift + rest_s, "right")) - first
        rest += min(int(np.searchsorted(arrival, rest_s - shift, "right")), first)
        place = np.arange(rounds * n + rest)
        request, number = (first + place) % n, place // n
        turned = request >= first
        at_s = arrival[request] + number * period_s + np.where(turned, shift - period_s, shift)
        if layer:
            carried = turned & (self._begin[request] + shift < period_s)
            number = number - carried + 1
        return _Picked(np.maximum(at_s, 0.0), request, _copy_numbers(layer, number))

    def _draws(self, picked: _Picked) -> F64:
        """The fraction of u of each request's session, in [0, 1)."""
        key = picked.copy * self._sessions + self._trace.session[picked.request]
        return _uniform(self._seed, key.astype(np.uint64) + np.uint64(1 << 40))

    def _materialise(self, picked: _Picked, rps: float, bar: float) -> Trace:
        trace, request = self._trace, picked.request
        starts, stops = trace.block_offsets[request], trace.block_offsets[request + 1]
        lengths = stops - starts
        offsets = np.zeros(len(request) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        gather = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        private = self._private[gather]
        copy = np.repeat(picked.copy, lengths)
        renamed = self._first_free + (copy - 1) * self._private_count + private
        arrival = picked.at_s - picked.at_s[0]
        record = {
            "change": "load",
            "method": "whole sessions thinned, copies shifted at random",
            "load_rps": rps,
            "natural_rps": self.natural_rps,
            "layers": bar,
            "seed": self._seed,
            "requests": len(request),
            "begins_s": float(picked.at_s[0]),
            "dispersion_before": self._before,
            "dispersion_after": dispersion(arrival),
        }
        notes = trace.source.notes
        if len(request) == MAX_REQUESTS:
            notes = (*notes, f"replays are cut at {MAX_REQUESTS:,} requests")
        return replace(
            trace,
            arrival_s=arrival,
            input_tokens=trace.input_tokens[request],
            output_tokens=trace.output_tokens[request],
            session=trace.session[request] + picked.copy * self._sessions,
            block_offsets=offsets,
            block_ids=np.where((copy > 0) & (private >= 0), renamed, trace.block_ids[gather]),
            bodies=tuple(trace.bodies[i] for i in request) if trace.bodies is not None else None,
            source=replace(trace.source, changes=(*trace.source.changes, record), notes=notes),
        )


def _copy_numbers(layer: int, number: I64) -> I64:
    """A number for each round of a layer, no two alike (Cantor's pairing); 0 for the trace itself."""
    diagonal = layer + number
    return diagonal * (diagonal + 1) // 2 + number


def _private_blocks(trace: Trace) -> tuple[I64, int]:
    """For each block of the trace a number where one session alone has it, -1 where several do; and the first
    block id that is free.
    """
    ids = trace.block_ids
    if not len(ids):
        return np.empty(0, np.int64), 0
    values, inverse = np.unique(ids, return_inverse=True)
    owner = np.repeat(trace.session, np.diff(trace.block_offsets))
    lowest = np.full(len(values), np.iinfo(np.int64).max)
    highest = np.full(len(values), -1, np.int64)
    np.minimum.at(lowest, inverse, owner)
    np.maximum.at(highest, inverse, owner)
    alone = lowest == highest
    number = np.where(alone, np.cumsum(alone) - 1, -1)
    return number[inverse], int(values[-1]) + 1


def _uniform(seed: int, counter: NDArray[np.uint64]) -> F64:
    """Independent draws in [0, 1) by counter: SplitMix64 (Steele, Lea, Flood 2014), seeded by `seed`."""
    state = counter * np.uint64(0x9E3779B97F4A7C15) + _mix(np.array([seed % 2**64], np.uint64))
    return np.asarray((_mix(state) >> np.uint64(11)) * 2.0**-53, np.float64)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
