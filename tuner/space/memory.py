"""How much KV cache a configuration leaves: vLLM's own sum, from the shape of the model and the flags.

`utilisation x total - weights - peak activation - graphs - everything else`, as gpu_worker.py
(determine_available_memory) takes it after a profiling run. The constants follow from start-up logs of vLLM
0.21.0 on an H200; one launch's log corrects the rest (`MemoryModel.calibrated`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape, kv_bytes_per_token_per_card
from tuner.space.effective import Effective, Resolver
from tuner.space.footprint import GIB, forward_gib, graph_gib, loaded_weights_gib, sampler_gib
from tuner.space.graphs import capture_sizes as capture_sizes
from tuner.space.versions import at_least
from tuner.spec import FlagValue

__all__ = ["Correction", "MemoryModel", "MemoryPlan", "capture_sizes", "plan_memory"]

# CUDA context growth, cuBLAS and Triton modules: what remains when the activations below are taken off.
_OTHER_GIB = 0.345
# NCCL's channels and vLLM's all-reduce buffers, which only a second rank brings.
_COLLECTIVES_GIB = 0.6
# A CPU server's Python and torch, beside the weights, as its resident set shows.
_CPU_PROCESS_GIB = 1.2
_CPU_KV_ENV = "VLLM_CPU_KVCACHE_SPACE"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """One card's memory in GiB, and the KV cache that remains.

    `kv_gib` is what vLLM logs as available KV cache memory: below zero where nothing remains, and `kv_tokens`
    then 0. `graph_gib` is 0 where graphs lie outside the budget (before vLLM 0.20.2) or are off;
    `unbudgeted_gib` holds them then.
    """

    weights_gib: float
    activation_gib: float
    graph_gib: float
    other_gib: float
    kv_gib: float
    kv_tokens: int
    block_size: int
    kv_blocks: int
    unbudgeted_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Correction:
    """What one launch's log taught, in GiB a card. The activation term is corrected where it was the peak:
    the forward pass (`forward_gib`) or the sampler (`sampler_gib`)."""

    weights_gib: float = 0.0
    forward_gib: float = 0.0
    sampler_gib: float = 0.0


class MemoryModel:
    """Memory of one model on one kind of GPU under one vLLM version."""

    def __init__(
        self, gpu: Gpu, shape: ModelShape, version: str, correction: Correction | None = None
    ) -> None:
        self.gpu, self.shape, self.version = gpu, shape, version
        self.correction = correction or Correction()
        self.resolve = Resolver(gpu, shape, version)
        self._graphs_inside = at_least(version, "0.20.2")
        self._cpu = gpu.platform is Platform.CPU

    def plan(self, config: Mapping[str, FlagValue]) -> MemoryPlan:
        """The memory of a configuration; flags that it leaves out take vLLM's defaults."""
        return self.plan_effective(self.resolve(config))

    def plan_effective(self, values: Effective) -> MemoryPlan:
        """The memory of effective values."""
        tp = max(1, values.tensor_parallel)
        weights = loaded_weights_gib(self.shape, tp, max(1, values.pipeline_parallel))
        weights += self.correction.weights_gib
        per_token = kv_bytes_per_token_per_card(self.shape, tp, values.kv_bytes)
        per_token /= max(1, values.pipeline_parallel)
        if self._cpu:
            parts = (0.0, 0.0, _CPU_PROCESS_GIB)
            available = self._cpu_kv_gib(values, weights)
            outside = 0.0
        else:
            graphs = 0.0 if values.eager else graph_gib(self.shape, values, self.version)
            inside, outside = (graphs, 0.0) if self._graphs_inside else (0.0, graphs)
            other = _OTHER_GIB + (_COLLECTIVES_GIB if tp > 1 else 0.0)
            parts = (self._activation_gib(values, tp), inside, other)
            if values.kv_cache_memory_bytes is not None:
                available = values.kv_cache_memory_bytes / GIB
            else:
                available = values.utilization * self.gpu.memory_gib - weights - sum(parts)
        block = max(1, values.block_size)
        blocks = max(0, math.floor(available * GIB / (per_token * block)))
        return MemoryPlan(weights, *parts, available, blocks * block, block, blocks, outside)

    def calibrated(
        self,
        config: Mapping[str, FlagValue],
        *,
        kv_gib: float | None = None,
        kv_tokens: int | None = None,
        weights_gib: float | None = None,
    ) -> MemoryModel:
        """This model corrected by what a launch of `config` logged.

        Args:
            config: the flags that were launched.
            kv_gib: "Available KV cache memory" in GiB; else taken from `kv_tokens`.
            kv_tokens: "GPU KV cache size" in tokens.
            weights_gib: "Model loading took" in GiB, where known.
        """
        values = self.resolve(config)
        tp = max(1, values.tensor_parallel)
        if self._cpu or values.kv_cache_memory_bytes is not None:
            return self  # such a size was asked for: it teaches nothing
        if kv_gib is None:
            if not kv_tokens:
                return self
            kv_gib = kv_tokens * kv_bytes_per_token_per_card(self.shape, tp, values.kv_bytes) / GIB
        learned = self.correction
        if weights_gib is not None:
            loaded = loaded_weights_gib(self.shape, tp, max(1, values.pipeline_parallel))
            learned = replace(learned, weights_gib=weights_gib - loaded)
        model = MemoryModel(self.gpu, self.shape, self.version, learned)
        missing = model.plan_effective(values).kv_gib - kv_gib
        if forward_gib(self.shape, values, tp) + learned.forward_gib >= (
            sampler_gib(self.shape, values) + learned.sampler_gib
        ):
            learned = replace(learned, forward_gib=learned.forward_gib + missing)
        else:
            learned = replace(learned, sampler_gib=learned.sampler_gib + missing)
        return MemoryModel(self.gpu, self.shape, self.version, learned)

    def _activation_gib(self, values: Effective, tp: int) -> float:
        forward = forward_gib(self.shape, values, tp) + self.correction.forward_gib
        return max(0.0, forward, sampler_gib(self.shape, values) + self.correction.sampler_gib)

    def _cpu_kv_gib(self, values: Effective, weights: float) -> float:
        """The CPU worker's rule: an explicit size, else the share of the host's memory less what is used
        (vllm/v1/worker/cpu_worker.py)."""
        if values.kv_cache_memory_bytes is not None:
            return values.kv_cache_memory_bytes / GIB
        space = os.environ.get(_CPU_KV_ENV, "")
        if space.isdigit() and int(space):
            return float(space)
        return values.utilization * self.gpu.memory_gib - weights - _CPU_PROCESS_GIB


def plan_memory(gpu: Gpu, shape: ModelShape, config: Mapping[str, FlagValue], version: str) -> MemoryPlan:
    """The memory of one configuration on one card of `gpu`, before any launch corrected it."""
    return MemoryModel(gpu, shape, version).plan(config)
