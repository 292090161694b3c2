"""A problem: GPU x model x trace x SLO, what is hidden, and the parts of a tune job on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from search_parts.engine import VERSION, Hidden, Truth
from search_parts.probe import probe
from search_parts.traffic import traffic
from tuner.hardware import Gpu, find_gpu
from tuner.models import ModelShape, find_model
from tuner.space import Parameter, ParameterKind, Rules, SearchSpace, load_space, without_quality_flags
from tuner.spec import Budget, Slo, TuneSpec, digest
from tuner.traces import Trace

REQUESTS = 400
ADDED = (
    Parameter("async-scheduling", ParameterKind.CHOICE, choices=(True, False), default=True),
    Parameter("stream-interval", ParameterKind.CHOICE, choices=(1, 4, 16), default=1),
)
"""Searched beside what the shipped space of the GPU holds."""


@dataclass(frozen=True)
class Problem:
    """One problem. `number` names it in the table and on the command line."""

    number: int
    gpu_name: str
    model: str
    trace_name: str
    slo: Slo
    hidden: Hidden = field(repr=False)

    @cached_property
    def gpu(self) -> Gpu:
        return find_gpu(self.gpu_name)

    @cached_property
    def shape(self) -> ModelShape:
        return find_model(self.model)

    @cached_property
    def trace(self) -> Trace:
        return traffic(self.trace_name)

    @cached_property
    def space(self) -> SearchSpace:
        space = load_space(None, gpu=self.gpu, shape=self.shape, trace=self.trace, version=VERSION, fixed={})
        plain = without_quality_flags(space)
        return replace(plain, parameters=tuple(sorted((*plain.parameters, *ADDED), key=lambda p: p.name)))

    @cached_property
    def truth(self) -> Truth:
        return Truth(self.gpu, self.shape, self.hidden)

    def rules(self) -> Rules:
        """What arithmetic refuses, before anything was learned."""
        return Rules(self.gpu, self.shape, VERSION, self.trace)

    def spec(self, trials: int, seed: int) -> TuneSpec:
        """What a user would ask."""
        return TuneSpec(
            gpu=self.gpu_name,
            slo=self.slo,
            model=self.model,
            requests=REQUESTS,
            budget=Budget(trials),
            seed=seed,
            vllm_version=VERSION,
        )

    @property
    def title(self) -> str:
        limits = ", ".join(f"{name} {limit:g} s" for name, limit in self.slo.limits().items())
        return f"{self.gpu_name}, {self.model.rpartition('/')[2]}, {self.trace_name}, {limits}"

    def digest(self) -> str:
        """Changes with whatever decides the truth: the problem, its traffic, its space, and how it serves."""
        asked = [self.gpu_name, self.model, self.trace.digest(), self.slo.to_json(), self.space.digest()]
        return digest([*asked, repr(self.hidden), probe(self.truth)])
