"""A simulated server whose truth is known: so many slots, first come first served, tokens at a fixed pace."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tuner.measure import GUARD, STEP, nearest_rank
from tuner.replay import Replay, Status, Workload
from tuner.replay.stop import Curtailment
from tuner.traces import Trace, TraceSource, shipped_trace


def poisson_trace(rps: float, n: int, seed: int, *, mean_tokens: float = 200.0, spread: float = 0.5) -> Trace:
    """Poisson arrivals, answers of lognormal length with this coefficient of the logarithm."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rps, n))
    tokens = rng.lognormal(np.log(mean_tokens) - spread**2 / 2, spread, n)
    return Trace(
        arrival_s=arrival - arrival[0],
        input_tokens=np.full(n, 100, np.int32),
        output_tokens=np.maximum(1, np.rint(tokens)).astype(np.int32),
        session=np.arange(n),
        block_offsets=np.zeros(n + 1, np.int64),
        block_ids=np.empty(0, np.int64),
        block_tokens=0,
        source=TraceSource("made"),
    )


@cache
def shipped() -> Trace:
    """The trace that ships, read once."""
    return shipped_trace()


def chat_lengths(trace: Trace, seed: int) -> Trace:
    """The same arrivals with prompts and answers as long as those of requests of the trace that ships."""
    rows = np.random.default_rng(seed).integers(0, len(shipped()), len(trace))
    tokens = {name: getattr(shipped(), name)[rows] for name in ("input_tokens", "output_tokens")}
    return replace(trace, **tokens)


@dataclass(frozen=True)
class SlotServer:
    """`slots` requests at a time, each `ttft_s` and then `tpot_s` a token; the others wait in line."""

    slots: int
    ttft_s: float = 0.2
    tpot_s: float = 0.02

    def begins(self, arrival: np.ndarray, service: np.ndarray) -> np.ndarray:
        """When each request gets its slot."""
        free = [0.0] * self.slots
        begin = np.empty(len(arrival))
        for index, (at, lasts) in enumerate(zip(arrival.tolist(), service.tolist(), strict=True)):
            start = max(free[0], at)
            begin[index] = start
            heapq.heapreplace(free, start + lasts)
        return begin

    def service_s(self, trace: Trace) -> np.ndarray:
        """How long each request takes once it has a slot."""
        return self.ttft_s + self.tpot_s * (trace.output_tokens - 1)

    def send(self, workload: Workload, stop: Curtailment | None = None) -> Replay:
        """A replay run to its end, whatever would stop it."""
        trace = workload.trace
        service = self.service_s(trace)
        begin = self.begins(trace.arrival_s, service)
        n = len(trace)
        return Replay(
            scheduled_s=trace.arrival_s,
            sent_s=trace.arrival_s,
            first_s=begin + self.ttft_s,
            last_s=begin + service,
            input_tokens=trace.input_tokens,
            output_tokens=trace.output_tokens,
            tokens=trace.output_tokens,
            first_tokens=np.ones(n, np.int32),
            status=np.full(n, Status.OK, np.int8),
            offered_rps=workload.offered_rps,
            engine_s=float((begin + service).max()),
            simulated=True,
        )

    def send_until(self, workload: Workload, stop: Curtailment | None = None) -> Replay:
        """A replay that is stopped where its verdict is certain."""
        whole = self.send(workload)
        if stop is None:
            return whole
        late_at = [
            np.sort(whole.scheduled_s[latency > limit] + limit)
            for latency, limit in ((whole.e2e_s(), stop.e2e_s), (whole.ttft_s(), stop.ttft_s))
        ]
        certain = [float(times[stop.max_over]) for times in late_at if len(times) > stop.max_over]
        return stopped_at(whole, min(certain)) if certain else whole

    def saturation_rps(self, mean_tokens: float = 200.0) -> float:
        """The load above which the line grows without end."""
        return self.slots / (self.ttft_s + self.tpot_s * (mean_tokens - 1))

    def capacity_rps(self, slo_s: float, *, requests: int = 100_000) -> float:
        """The highest load whose P99 over so many requests is within the guarded limit, to 0.5%."""
        low, high = 0.1 * self.saturation_rps(), 1.2 * self.saturation_rps()
        base = poisson_trace(1.0, requests, 12345)
        service = self.service_s(base)
        while high / low > 1.005:
            middle = (low * high) ** 0.5
            arrival = base.arrival_s / middle
            e2e = self.begins(arrival, service) + service - arrival
            if nearest_rank(e2e, 0.99) <= GUARD * slo_s:
                low = middle
            else:
                high = middle
        return low


def stopped_at(replay: Replay, at_s: float) -> Replay:
    """The same replay as it looks where it is stopped at that time."""
    ended = replay.last_s <= at_s
    return replace(
        replay,
        first_s=np.where(replay.first_s <= at_s, replay.first_s, np.nan),
        last_s=np.where(ended, replay.last_s, np.nan),
        tokens=np.where(ended, replay.tokens, 0).astype(np.int32),
        status=np.where(ended, Status.OK, Status.UNFINISHED).astype(np.int8),
        engine_s=at_s,
        stopped=True,
    )


def within_a_step(found: float, truth: float) -> bool:
    """Whether a load is within 5% of the truth."""
    return truth / STEP * (1 - 1e-6) <= found <= truth * STEP * (1 + 1e-6)
