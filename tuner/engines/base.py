"""The contract of every engine: start a configuration, replay traffic against it, stop it, leave nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tuner.masking import mask
from tuner.replay.records import Replay, Workload
from tuner.replay.stop import Curtailment
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue, Slo
from tuner.traces.trace import Trace

Progress = Callable[[int, int], None]
"""Called now and then during a replay with (requests ended, requests planned)."""
Phase = Callable[[str], None]
"""Called with what a launch is doing: "loading", "compiling", "capturing graphs", …"""


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    """It met the SLO at some load."""
    SLO = "slo"
    """It served, but lost to the incumbent or met the SLO at no load."""
    CRASH = "crash"
    """The configuration cannot start, or dies under load."""
    REFUSED = "refused"
    """A rule said before the launch that it cannot start."""
    MACHINE = "machine"
    """The machine's fault: asked again, never scored."""


class FailureKind(StrEnum):
    """Why a server is not there."""

    KV_MEMORY = "kv_memory"
    MODEL_LEN = "model_len"
    GPU_BUSY = "gpu_busy"
    OOM = "oom"
    ATTENTION_BACKEND = "attention_backend"
    BAD_FLAG = "bad_flag"
    TENSOR_PARALLEL = "tensor_parallel"
    PORT = "port"
    MODEL_FILES = "model_files"
    MEMORY_PROFILING = "memory_profiling"
    SHARED_MEMORY = "shared_memory"
    HOST_MEMORY = "host_memory"
    DRIVER = "driver"
    MODEL_UNSUPPORTED = "model_unsupported"
    ENGINE_DEAD = "engine_dead"
    HUNG = "hung"
    STARTUP_TIMEOUT = "startup_timeout"
    SLOT_LOST = "slot_lost"
    """The process or the machine that ran it has gone."""
    UNKNOWN = "unknown"


MACHINE_FAULTS = frozenset(
    {FailureKind.GPU_BUSY, FailureKind.PORT, FailureKind.MEMORY_PROFILING, FailureKind.SLOT_LOST}
)
"""Failures that say nothing about the configuration: tried again."""
NO_ENGINE = frozenset({FailureKind.DRIVER, FailureKind.MODEL_FILES, FailureKind.MODEL_UNSUPPORTED})
"""Failures that no configuration can mend: the job ends with exit 5."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a failure teaches about one flag: values outside [min, max] cannot work here."""

    flag: str
    min: float | None = None
    max: float | None = None


class LaunchFailure(Exception):
    """A server did not start, or died while it served."""

    def __init__(
        self,
        kind: FailureKind,
        cause: str,
        *,
        mend: str = "",
        bounds: tuple[Bound, ...] = (),
        log: Path | None = None,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(f"{kind}: {mask(cause)}")
        self.kind = kind
        self.cause = mask(cause)
        self.mend = mask(mend)
        self.bounds = bounds
        self.log = log
        self.seconds = seconds
        """Engine time that the attempt cost."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "kind": self.kind.value,
            "cause": self.cause,
            "mend": self.mend,
            "bounds": [[bound.flag, bound.min, bound.max] for bound in self.bounds],
            "log": str(self.log) if self.log else None,
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LaunchFailure:
        """The failure that `to_json` wrote."""
        return cls(
            FailureKind(values["kind"]),
            values["cause"],
            mend=values["mend"],
            bounds=tuple(Bound(*bound) for bound in values["bounds"]),
            log=Path(values["log"]) if values["log"] else None,
            seconds=values["seconds"],
        )


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a started server says of itself. `effective` holds the values in force of flags left to vLLM."""

    startup_s: float
    kv_tokens: int
    command: tuple[str, ...]
    weights_gib: float = 0.0
    effective: Mapping[str, FlagValue] = field(default_factory=dict)
    log: Path | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, without the log: a path of the machine that it lies on."""
        return {
            "startup_s": self.startup_s,
            "kv_tokens": self.kv_tokens,
            "command": list(self.command),
            "weights_gib": self.weights_gib,
            "effective": dict(self.effective),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ServerFacts:
        """The facts that `to_json` wrote."""
        return cls(
            startup_s=values["startup_s"],
            kv_tokens=values["kv_tokens"],
            command=tuple(values["command"]),
            weights_gib=values["weights_gib"],
            effective=dict(LaunchConfig.of(values["effective"])),
            notes=tuple(values["notes"]),
        )


class Server(Protocol):
    """A configuration that is up. A context manager: leaving it stops the server and waits till all is
    gone.
    """

    @property
    def facts(self) -> ServerFacts:
        """What it said at start-up."""
        ...

    def replay(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        """Offer the workload from a cold prefix cache and record what comes back.

        Raises:
            LaunchFailure: the server died or hung.
        """
        ...

    def stop(self) -> None:
        """Stop it; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Engine(Protocol):
    """Starts servers on one machine for one model."""

    @property
    def name(self) -> str:
        """`vllm` or `sim`."""
        ...

    @property
    def vllm_version(self) -> str:
        """The vLLM version that runs, or is simulated."""
        ...

    @property
    def deterministic(self) -> bool:
        """Whether the same launch and replay give the same records every time."""
        ...

    def launch(self, config: LaunchConfig, folder: Path, phase: Phase | None = None) -> Server:
        """Start a server; its log and files go into `folder`.

        Raises:
            LaunchFailure: it did not become ready.
        """
        ...

    def startup_estimate_s(self) -> float:
        """Seconds that a launch is expected to take, for the plan."""
        ...

    def close(self) -> None:
        """Give back what the engine holds beyond its servers."""
        ...


class Judged(Protocol):
    """What a predictor reads of a replay's judgement; `tuner.measure.Judgement` is one.

    `margin` is the largest log(P99 / limit) over the SLO's metrics.
    """

    @property
    def passes(self) -> bool: ...

    @property
    def margin(self) -> float: ...

    @property
    def replay(self) -> Replay: ...


class Predictor(Protocol):
    """The guide's view of a simulator: the capacity of a configuration without a launch.

    Loads are in the job's own unit: requests/s, or users in a closed loop.
    """

    def capacity_rps(
        self, config: LaunchConfig, *, trace: Trace | None = None, slo: Slo | None = None
    ) -> float:
        """Predicted highest load that meets the SLO; 0 where it cannot start or meets it nowhere.

        `trace` and `slo` replace those of the job's search.
        """
        ...

    def spread(self, config: LaunchConfig) -> float:
        """Relative standard deviation of that prediction."""
        ...

    def screen(self, configs: Sequence[LaunchConfig]) -> list[tuple[float, float]]:
        """Quick guesses for many configurations that can start: capacity and spread of each.

        They rest on the capacities asked for so far; before the first they are 0.
        """
        ...

    def outlook(self, configs: Sequence[LaunchConfig]) -> NDArray[np.float64]:
        """What launches may show beyond the prediction: draws x configurations, logs of capacity around it.

        Each row is one belief about all of them, so that what two configurations share is no difference.
        """
        ...

    def learn(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> None:
        """Take in what a launch measured: its replays by load."""
        ...

    def lesson(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> Mapping[str, Any]:
        """What `learn` takes from a launch, as plain JSON values."""
        ...

    def recall(self, lesson: Mapping[str, Any]) -> None:
        """Learn from a kept lesson: `learn(…)` is `recall(lesson(…))`."""
        ...
