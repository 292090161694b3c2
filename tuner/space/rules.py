"""Refusals by arithmetic: configurations that cannot start, or can never win, cost no launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape
from tuner.space.backends import LITERAL_BLOCK_SIZES, Backend, backends
from tuner.space.config import LaunchConfig
from tuner.space.effective import AUTO, Effective
from tuner.space.fit import check_feasible
from tuner.space.footprint import GIB
from tuner.space.memory import MemoryModel, MemoryPlan
from tuner.space.refusal import FlagBound, Learned, Refusal
from tuner.space.versions import at_least
from tuner.spec import FlagValue
from tuner.traces.trace import Trace

__all__ = ["FlagBound", "Refusal", "Rules", "check_feasible"]

_DEFAULT_COVERAGE = 0.99
"""A P99 with failures as infinity can never pass where more than 1% of the requests are rejected."""
# What the driver and CUDA's context hold on a card that is otherwise free, before vLLM measures.
_CONTEXT_GIB = 0.5


@dataclass(frozen=True, slots=True)
class _Case:
    """One configuration before the rules: what is fixed for the study, and its own effective values."""

    gpu: Gpu
    shape: ModelShape
    literal_block_sizes: bool
    backends: tuple[Backend, ...]
    shortest: int
    coverage: float
    values: Effective
    plan: MemoryPlan


Check = Callable[[_Case], Refusal | None]
_CHECKS: dict[str, Check] = {}


def _rule(check: Check) -> Check:
    """Registers a rule under its name; the order of registration is the order of asking."""
    _CHECKS[check.__name__.strip("_").replace("_", "-")] = check
    return check


def _refuse(rule: str, reason: str, flag: str, min: float | None = None, max: float | None = None) -> Refusal:
    return Refusal(rule, reason, FlagBound(flag, min, max, reason))


@_rule
def _positive(case: _Case) -> Refusal | None:
    values = case.values
    for flag, value in (
        ("max-num-seqs", values.max_num_seqs),
        ("max-num-batched-tokens", values.max_num_batched_tokens),
        ("block-size", values.block_size),
        ("tensor-parallel-size", values.tensor_parallel),
    ):
        if value < 1:
            return _refuse("positive", f"{flag} {value} is below 1", flag, min=1)
    if values.max_model_len < 1 and values.max_model_len != AUTO:
        return _refuse("positive", f"max-model-len {values.max_model_len} is below 1", "max-model-len", min=1)
    return None


@_rule
def _utilization(case: _Case) -> Refusal | None:
    value, flag = case.values.utilization, "gpu-memory-utilization"
    if not 0.0 < value <= 1.0:
        return _refuse("utilization", f"{flag} {value:g} is not in (0, 1]", flag, max=1.0)
    if case.gpu.platform is Platform.CPU or case.values.kv_cache_memory_bytes is not None:
        return None
    most = 1.0 - _CONTEXT_GIB / case.gpu.memory_gib
    if value > most:
        wanted = value * case.gpu.memory_gib
        reason = (
            f"{flag} {value:g} asks for {wanted:.1f} GiB, and about {case.gpu.memory_gib - _CONTEXT_GIB:.1f} "
            f"GiB are free on an idle {case.gpu.name}"
        )
        return _refuse("utilization", reason, flag, max=most)
    return None


@_rule
def _model_length(case: _Case) -> Refusal | None:
    value, most = case.values.max_model_len, case.shape.max_model_len
    if value > most:
        reason = f"max-model-len {value} is over the {most} tokens of {case.shape.name}"
        return _refuse("model-length", reason, "max-model-len", max=most)
    return None


@_rule
def _coverage(case: _Case) -> Refusal | None:
    value = case.values.max_model_len
    if value != AUTO and value < case.shortest:
        reason = (
            f"max-model-len {value} rejects more than {1 - case.coverage:.3g} of the trace's requests: "
            f"{case.shortest} tokens are needed to cover {case.coverage:.4g}"
        )
        return _refuse("coverage", reason, "max-model-len", min=case.shortest)
    return None


@_rule
def _batched_tokens(case: _Case) -> Refusal | None:
    values = case.values
    if values.max_num_batched_tokens < values.max_num_seqs:
        reason = (
            f"max-num-batched-tokens {values.max_num_batched_tokens} is below max-num-seqs "
            f"{values.max_num_seqs}"
        )
        return _refuse("batched-tokens", reason, "max-num-batched-tokens", min=values.max_num_seqs)
    return None


@_rule
def _whole_prompts(case: _Case) -> Refusal | None:
    values = case.values
    if not values.chunked_prefill and values.max_num_batched_tokens < values.max_model_len:
        reason = (
            f"without chunked prefill max-num-batched-tokens {values.max_num_batched_tokens} must reach "
            f"max-model-len {values.max_model_len}"
        )
        return _refuse("whole-prompts", reason, "max-num-batched-tokens", min=values.max_model_len)
    return None


@_rule
def _block_size(case: _Case) -> Refusal | None:
    size = case.values.block_size
    if case.literal_block_sizes and size not in LITERAL_BLOCK_SIZES:
        allowed = ", ".join(map(str, LITERAL_BLOCK_SIZES))
        return Refusal("block-size", f"block-size {size} is not one of {allowed} (vLLM up to 0.17)")
    if any(backend.takes(size) for backend in case.backends):
        return None
    tried = ", ".join(f"{b.name} multiples of {b.multiple}" for b in case.backends)
    reason = f"block-size {size}: no attention backend of {case.gpu.name} takes it ({tried})"
    least = min(b.multiple for b in case.backends)
    bound = FlagBound("block-size", min=least, reason=reason) if size < least else None
    return Refusal("block-size", reason, bound)


@_rule
def _heads(case: _Case) -> Refusal | None:
    tp, shape = case.values.tensor_parallel, case.shape
    if shape.heads % tp:
        return Refusal("heads", f"tensor-parallel-size {tp} does not divide {shape.heads} attention heads")
    if shape.mla is None and shape.kv_heads % tp and tp % shape.kv_heads:
        return Refusal("heads", f"tensor-parallel-size {tp} and {shape.kv_heads} KV heads do not divide")
    return None


@_rule
def _gpus(case: _Case) -> Refusal | None:
    values = case.values
    wanted = values.tensor_parallel * max(1, values.pipeline_parallel) * max(1, values.data_parallel)
    if wanted > case.gpu.count and case.gpu.platform is not Platform.CPU:
        reason = f"{wanted} GPUs are asked for, and there are {case.gpu.count}"
        return _refuse("gpus", reason, "tensor-parallel-size", max=case.gpu.count)
    return None


@_rule
def _weights(case: _Case) -> Refusal | None:
    plan, budget = case.plan, _budget_gib(case)
    if plan.weights_gib <= budget or case.values.kv_cache_memory_bytes is not None:
        return None
    reason = f"{plan.weights_gib:.1f} GiB of weights do not fit the {budget:.1f} GiB "
    if case.gpu.platform is Platform.CPU:
        return Refusal("weights", f"{reason}of this host")
    reason += f"that gpu-memory-utilization {case.values.utilization:g} gives of {case.gpu.name}"
    return _refuse("weights", reason, "gpu-memory-utilization", min=_needed_share(case))


@_rule
def _asked_kv(case: _Case) -> Refusal | None:
    """A KV cache of a given size is allocated without asking whether it fits."""
    asked, plan = case.values.kv_cache_memory_bytes, case.plan
    if asked is None:
        return None
    context = 0.0 if case.gpu.platform is Platform.CPU else _CONTEXT_GIB
    used = plan.weights_gib + plan.activation_gib + plan.graph_gib + plan.other_gib + plan.unbudgeted_gib
    left = case.gpu.memory_gib - context - used
    if asked / GIB > left:
        reason = (
            f"kv-cache-memory-bytes asks for {asked / GIB:.1f} GiB, and about {max(0, left):.1f} are left"
        )
        return _refuse("asked-kv", reason, "kv-cache-memory-bytes", max=max(0, int(left * GIB)))
    return None


@_rule
def _kv_memory(case: _Case) -> Refusal | None:
    plan = case.plan
    if plan.kv_blocks > 1:
        return None
    reason = (
        f"no memory is left for KV cache: of {_budget_gib(case):.1f} GiB weights take "
        f"{plan.weights_gib:.1f}, activations {plan.activation_gib:.1f}, graphs and CUDA "
        f"{plan.graph_gib + plan.other_gib:.1f}"
    )
    if case.gpu.platform is Platform.CPU or case.values.kv_cache_memory_bytes is not None:
        return Refusal("kv-memory", reason)
    return _refuse("kv-memory", reason, "gpu-memory-utilization", min=_needed_share(case))


@_rule
def _model_length_over_kv(case: _Case) -> Refusal | None:
    plan, value = case.plan, case.values.max_model_len
    if value > plan.kv_tokens:
        reason = f"max-model-len {value} needs more than the {plan.kv_tokens} KV tokens that fit"
        return Refusal(
            "model-length-over-kv",
            reason,
            FlagBound("max-model-len", max=plan.kv_tokens, reason=reason, kv_tokens=plan.kv_tokens),
        )
    return None


@_rule
def _graphs_outside(case: _Case) -> Refusal | None:
    """Before 0.20.2 graphs are captured outside the budget: they need what utilisation leaves."""
    outside = case.plan.unbudgeted_gib
    left = (1.0 - case.values.utilization) * case.gpu.memory_gib - _CONTEXT_GIB
    if outside > 0.0 and outside > left and case.values.kv_cache_memory_bytes is None:
        reason = (
            f"CUDA graphs need {outside:.2f} GiB beside the budget, and {max(0.0, left):.2f} GiB are left"
        )
        most = 1.0 - (outside + _CONTEXT_GIB) / case.gpu.memory_gib
        return _refuse("graphs-outside", reason, "gpu-memory-utilization", max=most)
    return None


def _budget_gib(case: _Case) -> float:
    """What vLLM may use of a card; of the whole host on a CPU."""
    if case.gpu.platform is Platform.CPU:
        return case.gpu.memory_gib
    return case.values.utilization * case.gpu.memory_gib


def _needed_share(case: _Case) -> float:
    """The utilisation at which a first KV block would fit."""
    return case.values.utilization + max(0.0, -case.plan.kv_gib) / case.gpu.memory_gib


def shortest_length(trace: Trace | None, coverage: float, model_length: int) -> int:
    """The smallest max-model-len that covers this share of the trace, at most the model's own length: a
    longer one cannot be had, so that one is never refused for the trace's sake.
    """
    if trace is None or not len(trace):
        return 1
    totals = np.sort(trace.input_tokens.astype(np.int64) + trace.output_tokens)
    # the share that fits is k / n at the k-th shortest; float error must not ask for one request more
    index = max(0, int(np.ceil(round(coverage * len(totals), 9))) - 1)
    return min(int(totals[min(index, len(totals) - 1)]), model_length)


class Rules:
    """Every rule for one GPU, model, version and trace; asked before each launch.

    `memory` is the model behind the memory rules: `observe` corrects it from a launch's log.
    """

    def __init__(
        self,
        gpu: Gpu,
        shape: ModelShape,
        version: str,
        trace: Trace | None = None,
        coverage: float | None = None,
    ) -> None:
        self.memory = MemoryModel(gpu, shape, version)
        self._gpu, self._shape = gpu, shape
        self._coverage = _DEFAULT_COVERAGE if coverage is None else coverage
        self._shortest = shortest_length(trace, self._coverage, shape.max_model_len)
        self._backends = backends(gpu, shape, version)
        self._literal = not at_least(version, "0.18")
        self._learned = Learned()

    @property
    def learned(self) -> tuple[FlagBound, ...]:
        """The bounds that logs taught so far."""
        return self._learned.bounds

    def check(self, config: Mapping[str, FlagValue]) -> Refusal | None:
        """Why this configuration is not worth a launch; None where nothing speaks against it."""
        values = self.memory.resolve(config)
        case = _Case(
            self._gpu,
            self._shape,
            self._literal,
            self._backends,
            self._shortest,
            self._coverage,
            values,
            self.memory.plan_effective(values),
        )
        for check in _CHECKS.values():
            refusal = check(case)
            if refusal is not None:
                return refusal
        return self._check_learned(config, case.plan) if self._learned.bounds else None

    def _check_learned(self, config: Mapping[str, FlagValue], plan: MemoryPlan) -> Refusal | None:
        flags = dict(config.items_) if isinstance(config, LaunchConfig) else dict(config)
        broken = self._learned.broken_by({**self.memory.resolve.defaults, **flags}, plan.kv_tokens)
        if broken is None:
            return None
        limits = [f"at least {broken.min:g}"] if broken.min is not None else []
        limits += [f"at most {broken.max:g}"] if broken.max is not None else []
        because = f" ({broken.reason})" if broken.reason else ""
        return Refusal(
            "learned", f"{broken.flag} must be {' and '.join(limits)}, as a launch showed{because}", broken
        )

    def learn(
        self,
        flag: str,
        min: float | None = None,
        max: float | None = None,
        reason: str = "",
        *,
        config: Mapping[str, FlagValue] | None = None,
    ) -> None:
        """Keep a bound that a log taught for the rest of the study.

        A bound that depends on memory (max-model-len against KV cache) holds only for configurations with no
        more KV cache than the one that taught it: give that one as `config`.
        """
        tokens = self.memory.plan(config).kv_tokens if config is not None else None
        self._learned.add(FlagBound(flag, min, max, reason, tokens))

    def observe(
        self,
        config: Mapping[str, FlagValue],
        *,
        kv_gib: float | None = None,
        kv_tokens: int | None = None,
        weights_gib: float | None = None,
    ) -> None:
        """Correct the memory arithmetic by what a launch of `config` logged."""
        self.memory = self.memory.calibrated(
            config, kv_gib=kv_gib, kv_tokens=kv_tokens, weights_gib=weights_gib
        )
