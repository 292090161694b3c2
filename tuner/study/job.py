"""What a study works on: the job, and what it asks of a search space and of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from tuner.engines.base import Engine, Predictor
from tuner.hardware.gpu import Gpu
from tuner.models.shape import ModelShape
from tuner.profiles.cost import GpuCost
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue, TuneSpec, digest
from tuner.traces.trace import Trace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class Space(Protocol):
    """What may be tried. `tuner.space.SearchSpace` is one."""

    @property
    def fixed(self) -> LaunchConfig: ...

    def distributions(self) -> dict[str, BaseDistribution]: ...

    def config(self, params: Mapping[str, Any]) -> LaunchConfig: ...

    def baseline(self) -> LaunchConfig: ...

    def params_of(self, effective: Mapping[str, FlagValue]) -> dict[str, Any]: ...

    def widened(self, effective: Mapping[str, FlagValue]) -> Self: ...

    def describe(self) -> dict[str, str]: ...

    def digest(self) -> str: ...


class Refused(Protocol):
    """Why a configuration cannot start. `tuner.space.Refusal` is one."""

    @property
    def rule(self) -> str: ...

    @property
    def reason(self) -> str: ...


class RuleBook(Protocol):
    """What is known not to start, before any launch. `tuner.space.Rules` is one."""

    def check(self, config: Mapping[str, FlagValue]) -> Refused | None: ...

    def learn(
        self,
        flag: str,
        min: float | None = None,
        max: float | None = None,
        reason: str = "",
        *,
        config: Mapping[str, FlagValue] | None = None,
    ) -> object: ...

    def observe(
        self,
        config: Mapping[str, FlagValue],
        *,
        kv_tokens: int | None = None,
        weights_gib: float | None = None,
    ) -> object: ...


class Slots(Protocol):
    """Places where trials run beside each other. `tuner.slots.Pool` is one."""

    @property
    def cards(self) -> int:
        """How many GPUs there are in all; a trial takes as many as its configuration says."""
        ...

    def take(self, cards: int) -> Engine | None:
        """An engine on so many GPUs; None where they are not free."""
        ...

    def free(self, cards: int) -> bool:
        """Whether `take` would find them."""
        ...

    def give(self, engine: Engine) -> None:
        """An engine that was taken is not needed any more."""
        ...

    def close(self) -> None:
        """End all slots; servers that run are stopped."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """How a study behaves, beyond what the user asked for.

    `fault_tries` launches in a row may fail by the machine's fault, `fault_wait_s` apart. `sampler` names one
    of `study.sampler` (None: the best that can be imported); without `suggestions` it starts from nothing but
    the baseline.
    """

    fault_tries: int = 3
    fault_wait_s: float = 10.0
    sampler: str | None = None
    suggestions: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """One tune job, put together.

    `defaults` are the values in force when no flag is set, for what a server's log does not say. `predictor`
    proposes configurations before anything is launched. `driver`, `machine` and `cost` go
    into the profile. `slots` are where the
    search runs trials beside each other, `parallel` at the most (None: one at a time, on `engine`); the
    baseline and the finals run alone on `engine`.
    """

    spec: TuneSpec
    engine: Engine
    gpu: Gpu
    shape: ModelShape
    trace: Trace
    space: Space
    rules: RuleBook
    defaults: Mapping[str, FlagValue] = field(default_factory=dict)
    predictor: Predictor | None = None
    driver: str | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    cost: GpuCost | None = None
    slots: Slots | None = None
    parallel: int = 1
    options: Options = field(default_factory=Options)

    def identity(self) -> dict[str, Any]:
        """What makes two jobs the same study, as plain JSON values."""
        return {
            **self.spec.identity(),
            "gpu": self.gpu.label,
            "engine": self.engine.name,
            "model_digest": model_digest(self.shape),
            "trace_digest": self.trace.digest(),
            "space_digest": self.space.digest(),
            "vllm_version": self.engine.vllm_version,
        }


def model_digest(shape: ModelShape) -> str:
    """Changes when the model does, wherever its folder lies."""
    return digest({k: v for k, v in asdict(shape).items() if k not in ("name", "path")})
