"""What a configuration that cannot start would have said: the failure that a real log gives, and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.engines.base import Bound, FailureKind, LaunchFailure
from tuner.errors import BadRequest
from tuner.hardware import Platform
from tuner.space import FlagTable, MemoryModel, Refusal, Rules
from tuner.spec import FlagValue


@dataclass(frozen=True, slots=True)
class _Death:
    """How vLLM dies of what a rule refuses: seconds until then, as real launches took on an H200."""

    kind: FailureKind
    seconds: float
    mend: str


_ARGUMENTS_S, _CONFIG_S, _BACKEND_S, _MEMORY_S, _LENGTH_S = 17.0, 20.0, 41.0, 48.0, 60.0
_MORE_MEMORY = "raise gpu-memory-utilization, lower max-num-batched-tokens or max-num-seqs, or use more GPUs"
_DEATHS: Mapping[str, _Death] = {
    "positive": _Death(FailureKind.BAD_FLAG, _ARGUMENTS_S, "use 1 or more"),
    "utilization": _Death(FailureKind.BAD_FLAG, _BACKEND_S, "lower gpu-memory-utilization"),
    "model-length": _Death(FailureKind.MODEL_LEN, _CONFIG_S, "lower max-model-len"),
    "batched-tokens": _Death(
        FailureKind.BAD_FLAG, _CONFIG_S, "raise max-num-batched-tokens or lower max-num-seqs"
    ),
    "whole-prompts": _Death(
        FailureKind.BAD_FLAG, _CONFIG_S, "raise max-num-batched-tokens or leave chunked prefill on"
    ),
    "block-size": _Death(FailureKind.ATTENTION_BACKEND, _BACKEND_S, "use a multiple that the backend takes"),
    "heads": _Death(FailureKind.TENSOR_PARALLEL, _CONFIG_S, "use a divisor of the attention heads"),
    "gpus": _Death(FailureKind.TENSOR_PARALLEL, _CONFIG_S, "use at most as many GPUs as there are"),
    "weights": _Death(FailureKind.OOM, _BACKEND_S, _MORE_MEMORY),
    "kv-memory": _Death(FailureKind.KV_MEMORY, _MEMORY_S, _MORE_MEMORY),
    "model-length-over-kv": _Death(
        FailureKind.MODEL_LEN, _LENGTH_S, "lower max-model-len or raise gpu-memory-utilization"
    ),
    "graphs-outside": _Death(FailureKind.OOM, _LENGTH_S, "lower gpu-memory-utilization or graph sizes"),
}
_UNNAMED = _Death(FailureKind.UNKNOWN, _LENGTH_S, "")


def refuse(rules: Rules, table: FlagTable, config: Mapping[str, FlagValue]) -> LaunchFailure | None:
    """The failure that a launch of `config` ends in, None where it starts.

    `rules` must come without a trace: what a trace needs is no reason for a server not to start.
    """
    unknown = next((problem for name in config if (problem := table.unknown(name)) is not None), None)
    if unknown is not None:
        return _refused_flag(unknown)
    refusal = rules.check(config)
    if refusal is not None:
        return _failure(refusal, rules, config)
    problems = table.problems(config)
    return _refused_flag(problems[0]) if problems else None


def _refused_flag(problem: BadRequest) -> LaunchFailure:
    return LaunchFailure(FailureKind.BAD_FLAG, problem.what, mend=problem.mend, seconds=_ARGUMENTS_S)


def _failure(refusal: Refusal, rules: Rules, config: Mapping[str, FlagValue]) -> LaunchFailure:
    death = _DEATHS.get(refusal.rule, _UNNAMED)
    bound = refusal.bound
    if bound is not None:
        bounds: tuple[Bound, ...] = (Bound(bound.flag, bound.min, bound.max),)
    elif refusal.rule == "kv-memory" and config.get("kv-cache-memory-bytes") is None:
        bounds = _least_utilization(rules.memory, config)
    else:
        bounds = ()
    return LaunchFailure(death.kind, refusal.reason, mend=death.mend, bounds=bounds, seconds=death.seconds)


def _least_utilization(memory: MemoryModel, config: Mapping[str, FlagValue]) -> tuple[Bound, ...]:
    """The utilisation at which the first block would fit, as a log's figures give it."""
    used = memory.resolve(config).utilization
    least = used + max(0.001, -memory.plan(config).kv_gib / memory.gpu.memory_gib)
    if least > 1.0 or memory.gpu.platform is Platform.CPU:
        return ()
    return (Bound("gpu-memory-utilization", min=math.ceil(round(least * 1e4, 6)) / 1e4),)
