"""The rules, in the order in which they are asked: each says why it refuses a configuration, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape
from tuner.space.backends import LITERAL_BLOCK_SIZES, Backend
from tuner.space.effective import AUTO, Effective
from tuner.space.footprint import GIB
from tuner.space.memory import MemoryPlan
from tuner.space.refusal import FlagBound, Refusal

# What the driver and CUDA's context hold on a card that is otherwise free, before vLLM measures.
_CONTEXT_GIB = 0.5


@dataclass(frozen=True, slots=True)
class Place:
    """What does not change within a study. `shortest` is the max-model-len that covers `coverage` of the
    trace; `literal_block_sizes` whether vLLM takes a fixed set only, `null_block` whether it sets one block
    aside before it looks whether the longest request fits.
    """

    gpu: Gpu
    shape: ModelShape
    backends: tuple[Backend, ...]
    literal_block_sizes: bool
    null_block: bool
    shortest: int
    coverage: float


class Case(NamedTuple):
    """One configuration: its effective values and the memory that follows."""

    place: Place
    values: Effective
    plan: MemoryPlan


Check = Callable[[Case], Refusal | None]
CHECKS: dict[str, Check] = {}


def _rule(check: Check) -> Check:
    """Registers a rule under its name; the order of registration is the order of asking."""
    CHECKS[check.__name__.strip("_").replace("_", "-")] = check
    return check


def _bounded(
    rule: str, reason: str, flag: str, *, min: float | None = None, max: float | None = None
) -> Refusal:
    return Refusal(rule, reason, FlagBound(flag, min, max, reason), flag)


@_rule
def _positive(case: Case) -> Refusal | None:
    values = case.values
    for flag, value in (
        ("max-num-seqs", values.max_num_seqs),
        ("max-num-batched-tokens", values.max_num_batched_tokens),
        ("block-size", values.block_size),
        ("tensor-parallel-size", values.tensor_parallel),
    ):
        if value < 1:
            return _bounded("positive", f"{flag} {value} is below 1", flag, min=1)
    if values.max_model_len < 1 and values.max_model_len != AUTO:
        return _bounded(
            "positive", f"max-model-len {values.max_model_len} is below 1", "max-model-len", min=1
        )
    return None


@_rule
def _utilization(case: Case) -> Refusal | None:
    value, flag = case.values.utilization, "gpu-memory-utilization"
    if not 0.0 < value <= 1.0:
        return _bounded("utilization", f"{flag} {value:g} is not in (0, 1]", flag, min=0.0, max=1.0)
    if case.place.gpu.platform is Platform.CPU or case.values.kv_cache_memory_bytes is not None:
        return None
    gpu = case.place.gpu
    free, wanted = gpu.memory_gib - _CONTEXT_GIB, value * gpu.memory_gib
    if wanted > free:
        reason = (
            f"{flag} {value:g} asks for {wanted:.1f} GiB, and about {free:.1f} GiB are free "
            f"on an idle {gpu.name}"
        )
        return _bounded("utilization", reason, flag, max=free / gpu.memory_gib)
    return None


@_rule
def _model_length(case: Case) -> Refusal | None:
    value, most = case.values.max_model_len, case.place.shape.max_model_len
    if value > most:
        reason = f"max-model-len {value} is over the {most} tokens of {case.place.shape.name}"
        return _bounded("model-length", reason, "max-model-len", max=most)
    return None


@_rule
def _coverage(case: Case) -> Refusal | None:
    value = case.values.max_model_len
    if value != AUTO and value < case.place.shortest:
        reason = (
            f"max-model-len {value} rejects more than {1 - case.place.coverage:.3g} of the trace's requests: "
            f"{case.place.shortest} tokens are needed to cover {case.place.coverage:.4g}"
        )
        return _bounded("coverage", reason, "max-model-len", min=case.place.shortest)
    return None


@_rule
def _batched_tokens(case: Case) -> Refusal | None:
    tokens, seqs = case.values.max_num_batched_tokens, case.values.max_num_seqs
    if tokens < seqs:
        reason = f"max-num-batched-tokens {tokens} is below max-num-seqs {seqs}"
        return Refusal("batched-tokens", reason, flag="max-num-batched-tokens")
    return None


@_rule
def _whole_prompts(case: Case) -> Refusal | None:
    values = case.values
    if not values.chunked_prefill and values.max_num_batched_tokens < values.max_model_len:
        reason = (
            f"without chunked prefill max-num-batched-tokens {values.max_num_batched_tokens} must reach "
            f"max-model-len {values.max_model_len}"
        )
        return Refusal("whole-prompts", reason, flag="max-num-batched-tokens")
    return None


@_rule
def _block_size(case: Case) -> Refusal | None:
    size, flag = case.values.block_size, "block-size"
    if case.place.literal_block_sizes and size not in LITERAL_BLOCK_SIZES:
        allowed = ", ".join(map(str, LITERAL_BLOCK_SIZES))
        return Refusal(flag, f"block-size {size} is not one of {allowed} (vLLM up to 0.17)", flag=flag)
    if any(backend.takes(size) for backend in case.place.backends):
        return None
    tried = ", ".join(f"{b.name} multiples of {b.multiple}" for b in case.place.backends)
    reason = f"block-size {size}: no attention backend of {case.place.gpu.name} takes it ({tried})"
    least = min(b.multiple for b in case.place.backends)
    return _bounded(flag, reason, flag, min=least) if size < least else Refusal(flag, reason, flag=flag)


@_rule
def _heads(case: Case) -> Refusal | None:
    tp, shape = case.values.tensor_parallel, case.place.shape
    reason = ""
    if shape.heads % tp:
        reason = f"tensor-parallel-size {tp} does not divide {shape.heads} attention heads"
    elif shape.mla is None and shape.kv_heads % tp and tp % shape.kv_heads:
        reason = f"tensor-parallel-size {tp} neither divides {shape.kv_heads} KV heads nor is a multiple"
    return Refusal("heads", reason, flag="tensor-parallel-size") if reason else None


@_rule
def _gpus(case: Case) -> Refusal | None:
    values = case.values
    wanted = values.tensor_parallel * max(1, values.pipeline_parallel) * max(1, values.data_parallel)
    if wanted > case.place.gpu.count and case.place.gpu.platform is not Platform.CPU:
        reason = f"{wanted} GPUs are asked for, and there are {case.place.gpu.count}"
        return _bounded("gpus", reason, "tensor-parallel-size", max=case.place.gpu.count)
    return None


@_rule
def _weights(case: Case) -> Refusal | None:
    plan, budget, flag = case.plan, _budget_gib(case), "gpu-memory-utilization"
    if plan.weights_gib <= budget or case.values.kv_cache_memory_bytes is not None:
        return None
    reason = f"{plan.weights_gib:.1f} GiB of weights do not fit the {budget:.1f} GiB "
    if case.place.gpu.platform is Platform.CPU:
        return Refusal("weights", f"{reason}of this host")
    reason += f"that {flag} {case.values.utilization:g} gives of {case.place.gpu.name}"
    if case.place.gpu.count > 1:  # another split would need another share
        return Refusal("weights", reason, flag=flag)
    return _bounded("weights", reason, flag, min=plan.weights_gib / case.place.gpu.memory_gib)


@_rule
def _kv_memory(case: Case) -> Refusal | None:
    asked, plan = case.values.kv_cache_memory_bytes, case.plan
    if asked is not None:
        return _asked_kv(case, asked)
    if plan.kv_blocks > 1:
        return None
    reason = (
        f"no memory is left for KV cache: of {_budget_gib(case):.1f} GiB weights take "
        f"{plan.weights_gib:.1f}, activations {plan.activation_gib:.1f}, graphs and CUDA "
        f"{plan.graph_gib + plan.other_gib:.1f}"
    )
    return Refusal("kv-memory", reason, flag="gpu-memory-utilization")


def _asked_kv(case: Case, asked: int) -> Refusal | None:
    """A KV cache of a given size is allocated without asking whether it fits."""
    plan, flag = case.plan, "kv-cache-memory-bytes"
    context = 0.0 if case.place.gpu.platform is Platform.CPU else _CONTEXT_GIB
    used = plan.weights_gib + plan.activation_gib + plan.graph_gib + plan.other_gib + plan.unbudgeted_gib
    left = max(0.0, case.place.gpu.memory_gib - context - used)
    if asked / GIB > left:
        reason = f"{flag} asks for {asked / GIB:.1f} GiB, and about {left:.1f} GiB are left"
        return Refusal("kv-memory", reason, flag=flag)
    if plan.kv_blocks <= 1:
        return Refusal("kv-memory", f"{flag} {asked} holds no two blocks", flag=flag)
    return None


@_rule
def _model_length_over_kv(case: Case) -> Refusal | None:
    tokens, value, flag = case.plan.kv_tokens, case.values.max_model_len, "max-model-len"
    if case.place.null_block:
        tokens -= case.plan.block_size
    if value > tokens:
        reason = f"max-model-len {value} needs more than the {tokens} KV tokens that fit"
        return Refusal(
            "model-length-over-kv", reason, FlagBound(flag, None, tokens, reason, kv_tokens=tokens), flag
        )
    return None


@_rule
def _graphs_outside(case: Case) -> Refusal | None:
    """Before 0.20.2 graphs are captured outside the budget: they need what utilisation leaves."""
    outside = case.plan.unbudgeted_gib
    left = (1.0 - case.values.utilization) * case.place.gpu.memory_gib - _CONTEXT_GIB
    if outside > 0.0 and outside > left and case.values.kv_cache_memory_bytes is None:
        reason = (
            f"CUDA graphs need {outside:.2f} GiB beside the budget, and {max(0.0, left):.2f} GiB are left"
        )
        return Refusal("graphs-outside", reason, flag="gpu-memory-utilization")
    return None


def _budget_gib(case: Case) -> float:
    """What vLLM may use of a card; of the whole host on a CPU."""
    if case.place.gpu.platform is Platform.CPU:
        return case.place.gpu.memory_gib
    return case.values.utilization * case.place.gpu.memory_gib
