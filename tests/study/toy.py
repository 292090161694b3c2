"""A toy engine whose truth is a formula, a toy space and rules, and an observer that keeps everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.engines.base import Bound, FailureKind, LaunchFailure, ServerFacts
from tuner.hardware.gpu import Gpu
from tuner.measure import Capacity, Judgement
from tuner.models.shape import ModelShape
from tuner.replay import Curtailment, Replay, Status, Workload
from tuner.space.config import LaunchConfig
from tuner.spec import Budget, Slo, TuneSpec
from tuner.study import Job, Options
from tuner.traces import Trace, TraceSource

GPU = Gpu("A100-80G", 79.25, 2039.0, {"bf16": 312.0})
SHAPE = ModelShape("kimi-k2.6-awq", 27, 2048, 16, 16, 128, 8192, 160_000, 32_768)
DEFAULTS = {
    "max-num-seqs": 256,
    "max-num-batched-tokens": 2048,
    "gpu-memory-utilization": 0.9,
    "enable-prefix-caching": True,
    "max-model-len": 8192,
}
STARTUP_S = 40.0


def truth_rps(flags: Mapping[str, Any]) -> float:
    """Requests a second that the toy serves."""
    return (
        4.0
        * (1.0 - math.exp(-flags["max-num-seqs"] / 300.0))
        * (flags["max-num-batched-tokens"] / 8192.0) ** 0.3
        * (1.0 if flags["enable-prefix-caching"] else 0.8)
        * (1.0 + 3.0 * (flags["gpu-memory-utilization"] - 0.9))
    )


def made_replay(
    workload: Workload,
    scheduled: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    *,
    status: np.ndarray,
    engine_s: float,
    stopped: bool,
) -> Replay:
    """The records of a replay by when its requests were due, and when their first and last tokens came."""
    trace, gone = workload.trace, status != Status.OK
    return Replay(
        scheduled_s=scheduled,
        sent_s=scheduled,
        first_s=np.where(gone, np.nan, first),
        last_s=np.where(gone, np.nan, last),
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        tokens=np.where(gone, 0, trace.output_tokens).astype(np.int32),
        first_tokens=np.ones(len(trace), dtype=np.int32),
        status=status,
        offered_rps=workload.offered_rps,
        engine_s=engine_s,
        users=workload.users,
        stopped=stopped,
        simulated=True,
    )


@dataclass
class ToyServer:
    """Serves one request after the other, each in 1 / truth seconds, plus a time that all take."""

    engine: ToyEngine
    flags: dict[str, Any]
    config: LaunchConfig
    stopped: bool = False

    @property
    def facts(self) -> ServerFacts:
        return ServerFacts(
            startup_s=STARTUP_S,
            kv_tokens=round(200_000 * self.flags["gpu-memory-utilization"]),
            command=("vllm", "serve", "toy", *(f"--{k}={v}" for k, v in self.config.items())),
            effective=dict(self.flags),
        )

    def replay(self, workload: Workload, stop: Curtailment | None = None, progress: Any = None) -> Replay:
        assert not self.stopped
        self.engine.on_replay()
        trace, n = workload.trace, len(workload.trace)
        rate = self.engine.speed(self.flags) * self.engine.noise()
        alone_s = self.engine.alone_s + self.flags["max-num-seqs"] / 200.0
        if workload.users is not None:
            scheduled = np.arange(n) / rate
            last = scheduled + max(alone_s + 1.0 / rate, workload.users / rate)
        else:
            scheduled = trace.arrival_s
            free, last = 0.0, np.empty(n)
            for i, arrival in enumerate(scheduled.tolist()):
                free = max(arrival, free) + 1.0 / rate
                last[i] = free + alone_s
        status = np.full(n, Status.OK, dtype=np.int8)
        status[trace.input_tokens + trace.output_tokens > self.flags["max-model-len"]] = Status.REJECTED
        end = float(last.max())
        over = (last - scheduled > (stop.e2e_s if stop else math.inf)) | (status != Status.OK)
        stopped = stop is not None and int(over.sum()) > stop.max_over
        if stop is not None and stopped:
            known = np.sort(np.where(status == Status.OK, scheduled + stop.e2e_s, scheduled)[over])
            end = float(known[stop.max_over])
            status[(last > end) & (status == Status.OK)] = Status.UNFINISHED
        if progress:
            progress(n, n)
        return made_replay(
            workload, scheduled, last - 0.5, last, status=status, engine_s=end, stopped=stopped
        )

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.engine.open_servers -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass
class ToyEngine:
    """Flags over a memory limit crash; `before_launch` and `before_replay` can raise what they like."""

    deterministic: bool = True
    spread: float = 0.0
    seed: int = 0
    name: str = "sim"
    vllm_version: str = "0.21.0"
    alone_s: float = 1.0
    speed: Callable[[Mapping[str, Any]], float] = truth_rps
    before_launch: Callable[[int], None] = lambda _: None
    before_replay: Callable[[int], None] = lambda _: None
    launched: list[LaunchConfig] = field(default_factory=list)
    replays: int = 0
    open_servers: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def noise(self) -> float:
        return float(np.exp(self.spread * self._rng.standard_normal())) if self.spread else 1.0

    def on_replay(self) -> None:
        self.replays += 1
        self.before_replay(self.replays)

    def launch(self, config: LaunchConfig, folder: Path, phase: Any = None) -> ToyServer:
        assert self.open_servers == 0, "two servers at a time"
        self.launched.append(config)
        if phase:
            phase("loading")
        self.before_launch(len(self.launched))
        flags = {**DEFAULTS, **config}
        if flags["max-model-len"] == "auto":
            flags["max-model-len"] = 8192
        if flags["gpu-memory-utilization"] > 0.955:
            bound = Bound("gpu-memory-utilization", max=0.955)
            raise LaunchFailure(FailureKind.OOM, "CUDA out of memory", bounds=(bound,), seconds=25.0)
        if flags["max-num-batched-tokens"] >= 8192 and flags["max-num-seqs"] > 700:
            raise LaunchFailure(FailureKind.KV_MEMORY, "no room for the KV cache", seconds=30.0)
        self.open_servers += 1
        return ToyServer(self, flags, config)

    def startup_estimate_s(self) -> float:
        return STARTUP_S

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ToySpace:
    """Five flags; `extra` widens the ranges."""

    fixed: LaunchConfig = LaunchConfig()
    seqs: tuple[int, int] = (32, 1024)

    def distributions(self) -> dict[str, optuna.distributions.BaseDistribution]:
        every: dict[str, optuna.distributions.BaseDistribution] = {
            "enable-prefix-caching": CategoricalDistribution((True, False)),
            "gpu-memory-utilization": FloatDistribution(0.8, 0.98, step=0.01),
            "max-model-len": IntDistribution(4096, 16384, step=1024),
            "max-num-batched-tokens": CategoricalDistribution((1024, 2048, 4096, 8192)),
            "max-num-seqs": IntDistribution(*self.seqs, log=True),
        }
        return {name: d for name, d in every.items() if name not in self.fixed}

    def config(self, params: Mapping[str, Any]) -> LaunchConfig:
        return LaunchConfig.of({**self.fixed, **params})

    def baseline(self) -> LaunchConfig:
        return self.fixed

    def params_of(self, effective: Mapping[str, Any]) -> dict[str, Any]:
        return {name: effective[name] for name in self.distributions()}

    def widened(self, effective: Mapping[str, Any]) -> ToySpace:
        low, high = self.seqs
        value = effective["max-num-seqs"]
        return replace(self, seqs=(min(low, value), max(high, value)))

    def describe(self) -> dict[str, str]:
        return {name: str(d) for name, d in self.distributions().items()}

    def digest(self) -> str:
        return repr(self)


@dataclass(frozen=True)
class ToyRefusal:
    rule: str
    reason: str


@dataclass
class ToyRules:
    """Refuses batched tokens below the sequences, and what was learned."""

    refuse: Callable[[Mapping[str, Any]], bool] = lambda _: False
    learned: list[tuple[str, float | None, float | None]] = field(default_factory=list)
    observed: dict[str, int | None] = field(default_factory=dict)

    def check(self, config: Mapping[str, Any]) -> ToyRefusal | None:
        if config.get("max-num-batched-tokens", 2048) < config.get("max-num-seqs", 256):
            return ToyRefusal("batch", "max-num-batched-tokens is below max-num-seqs")
        for flag, low, high in self.learned:
            value = config.get(flag)
            if value is not None and not (low or -math.inf) <= value <= (high or math.inf):
                return ToyRefusal("learned", f"{flag} {value} is known not to start")
        return ToyRefusal("toy", "refused") if self.refuse(config) else None

    def learn(
        self,
        flag: str,
        min: float | None = None,
        max: float | None = None,
        reason: str = "",
        *,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.learned.append((flag, min, max))

    def observe(
        self, config: Mapping[str, Any], *, kv_tokens: int | None = None, weights_gib: float | None = None
    ) -> None:
        self.observed[LaunchConfig.of(config).key()] = kv_tokens


@dataclass
class Watcher:
    """Keeps what it is told."""

    events: list[tuple[str, Any]] = field(default_factory=list)

    def planned(self, plan: Any) -> None:
        self.events.append(("planned", plan))

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None:
        self.events.append(("trial_started", (number, origin, config)))

    def note(self, text: str) -> None:
        self.events.append(("note", text))

    def phase(self, text: str) -> None:
        self.events.append(("phase", text))

    def replay_progress(self, done: int, planned: int) -> None:
        pass

    def replay_latency(self, p99_s: float) -> None:
        pass

    def replayed(self, rps: float, judgement: Judgement) -> None:
        self.events.append(("replayed", rps))

    def trial_finished(self, record: Any, best: Any) -> None:
        self.events.append(("trial_finished", record))

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None:
        self.events.append(("final_started", (label, config, index, total)))

    def final_finished(self, label: str, capacity: Capacity) -> None:
        self.events.append(("final_finished", (label, capacity)))

    def finished(self, result: Any) -> None:
        self.events.append(("finished", result))

    def of(self, kind: str) -> list[Any]:
        return [value for name, value in self.events if name == kind]


def make_trace(requests: int = 400, rate: float = 1.0, seed: int = 7) -> Trace:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0 / rate, requests))
    return Trace(
        arrival_s=arrival - arrival[0],
        input_tokens=rng.integers(200, 3000, requests).astype(np.int32),
        output_tokens=rng.integers(20, 400, requests).astype(np.int32),
        session=np.arange(requests, dtype=np.int64),
        block_offsets=np.zeros(requests + 1, dtype=np.int64),
        block_ids=np.zeros(0, dtype=np.int64),
        block_tokens=0,
        source=TraceSource("toy"),
    )


def make_job(
    engine: ToyEngine | None = None,
    *,
    trials: int = 10,
    engine_s: float | None = None,
    slo_s: float = 30.0,
    seed: int = 0,
    space: ToySpace | None = None,
    rules: ToyRules | None = None,
    **spec: Any,
) -> Job:
    asked = TuneSpec(
        gpu="A100-80G",
        slo=Slo(e2e_p99_s=slo_s),
        model="kimi-k2.6-awq",
        requests=200,
        budget=Budget(trials, engine_s),
        seed=seed,
        **spec,
    )
    return Job(
        spec=asked,
        engine=engine or ToyEngine(),
        gpu=GPU,
        shape=SHAPE,
        trace=make_trace(),
        space=space or ToySpace(),
        rules=rules or ToyRules(),
        defaults=DEFAULTS,
        options=Options(fault_wait_s=0.0),
    )
