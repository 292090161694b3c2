"""A noisy engine whose truth is known: one queue, and an answer that takes its time. A replay costs a
millisecond."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from toy import DEFAULTS, made_replay

from tuner.engines.base import ServerFacts
from tuner.measure import nearest_rank
from tuner.replay import Curtailment, Replay, Status, Workload
from tuner.space.config import LaunchConfig
from tuner.traces import Trace, TraceSource

SLO_S = 10.0
TOKEN_S = 0.02
"""Seconds a token once a request has its turn, where the load is what the server can do; half at none."""
MEAN_TOKENS = 120.0


def traffic(requests: int, seed: int, rate: float = 4.0) -> Trace:
    """Poisson arrivals of requests that ask for gamma-distributed answers."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0 / rate, requests))
    tokens = np.clip(np.rint(rng.gamma(3.0, MEAN_TOKENS / 3.0, requests)), 1, 1000)
    return Trace(
        arrival_s=arrival - arrival[0],
        input_tokens=np.full(requests, 100, np.int32),
        output_tokens=tokens.astype(np.int32),
        session=np.arange(requests, dtype=np.int64),
        block_offsets=np.zeros(requests + 1, dtype=np.int64),
        block_ids=np.zeros(0, dtype=np.int64),
        block_tokens=0,
        source=TraceSource("made"),
    )


def token_s(load: float, rps: float) -> float:
    """Seconds a token: batches grow with the load."""
    return TOKEN_S * (0.5 + 0.5 * min(load / rps, 1.5))


def latencies(trace: Trace, rps: float, noise: np.ndarray | float = 1.0) -> np.ndarray:
    """E2E in seconds: Lindley's recursion over service times that go with the tokens, then the answer."""
    service = trace.output_tokens / MEAN_TOKENS / rps * noise
    ends = np.cumsum(service)
    begins = trace.arrival_s - (ends - service)
    return (
        np.maximum.accumulate(begins)
        + ends
        - trace.arrival_s
        + trace.output_tokens * token_s(trace.rate_rps, rps)
    )


@lru_cache(maxsize=1)
def _long() -> Trace:
    return traffic(200_000, 99_991, 1.0)


def long_run_p99_s(load: float, rps: float) -> float:
    """P99 at a load where the same kind of traffic never ends."""
    trace = _long()
    service = trace.output_tokens / MEAN_TOKENS / rps
    ends = np.cumsum(service)
    arrival = trace.arrival_s / load
    waits = np.maximum.accumulate(arrival - (ends - service)) + ends - arrival
    return nearest_rank(waits + trace.output_tokens * token_s(load, rps), 0.99)


@dataclass
class QueueServer:
    """One launch: its speed is a little off, and so is every replay."""

    engine: QueueEngine
    flags: dict[str, Any]
    config: LaunchConfig
    rps: float

    @property
    def facts(self) -> ServerFacts:
        return ServerFacts(
            startup_s=40.0,
            kv_tokens=100_000,
            command=("vllm", "serve", "toy", *(f"--{k}={v}" for k, v in self.config.items())),
            effective=dict(self.flags),
        )

    def replay(self, workload: Workload, stop: Curtailment | None = None, progress: Any = None) -> Replay:
        trace, n, rng = workload.trace, len(workload.trace), self.engine.rng
        if workload.users is not None:
            scheduled = np.arange(n) / self.rps
            latency = workload.users / self.rps + trace.output_tokens * TOKEN_S
        else:
            scheduled = trace.arrival_s
            latency = latencies(trace, self.rps, np.exp(self.engine.request_spread * rng.standard_normal(n)))
        latency = latency * math.exp(self.engine.replay_spread * rng.standard_normal())
        status = np.full(n, Status.OK, dtype=np.int8)
        over = latency > (stop.e2e_s if stop else math.inf)
        stopped = stop is not None and int(over.sum()) > stop.max_over
        last = scheduled + latency
        end = float(last.max())
        if stop is not None and stopped:
            end = float(np.sort(scheduled[over] + stop.e2e_s)[stop.max_over])
            status[last > end] = Status.UNFINISHED
        first = last - trace.output_tokens * TOKEN_S
        return made_replay(workload, scheduled, first, last, status=status, engine_s=end, stopped=stopped)

    def stop(self) -> None:
        pass

    def __enter__(self) -> QueueServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass
class QueueEngine:
    """`speed` gives the requests a second that a configuration serves in truth."""

    speed: Callable[[Mapping[str, Any]], float]
    seed: int
    launch_spread: float = 0.03
    replay_spread: float = 0.05
    request_spread: float = 0.1
    deterministic: bool = False
    name: str = "vllm"
    vllm_version: str = "0.21.0"
    launched: list[LaunchConfig] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 77])

    def truth_rps(self, config: Mapping[str, Any]) -> float:
        return self.speed({**DEFAULTS, **config})

    def launch(self, config: LaunchConfig, folder: Path, phase: Any = None) -> QueueServer:
        self.launched.append(config)
        off = math.exp(self.launch_spread * self.rng.standard_normal())
        return QueueServer(self, {**DEFAULTS, **config}, config, self.truth_rps(config) * off)

    def startup_estimate_s(self) -> float:
        return 40.0

    def close(self) -> None:
        pass
