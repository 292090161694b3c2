"""How much KV cache a configuration leaves: vLLM's own sum, from the shape of the model and the flags.

`utilisation x total - weights - peak activation - graphs - everything else`, as gpu_worker.py
(determine_available_memory) takes it after a profiling run. The constants follow from start-up logs of vLLM
0.21.0 on an H200; one launch's log corrects the rest (`MemoryModel.calibrated`).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape
from tuner.space.effective import Effective, Resolver
from tuner.space.footprint import GIB, Footprint
from tuner.space.graphs import capture_sizes, effective_capture_sizes
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
_GRAPHS_ENV = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
CPU_KV_GIB = 1.0
"""The KV cache of a CPU server that the tuner starts where the user's environment does not say."""


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
    in the forward pass (`forward_gib`) or in the sampler (`sampler_gib`).
    """

    weights_gib: float = 0.0
    forward_gib: float = 0.0
    sampler_gib: float = 0.0
    other_gib: float = 0.0


class MemoryModel:
    """Memory of one model on one kind of GPU under one vLLM version."""

    def __init__(
        self, gpu: Gpu, shape: ModelShape, version: str, correction: Correction | None = None
    ) -> None:
        self.gpu, self.shape, self.version = gpu, shape, version
        self.correction = correction or Correction()
        self.resolve = Resolver(gpu, shape, version)
        self._graphs_inside = _graphs_inside(version)
        self._cpu = gpu.platform is Platform.CPU
        self._footprints: dict[tuple[int, int], Footprint] = {}

    def plan(self, config: Mapping[str, FlagValue]) -> MemoryPlan:
        """The memory of a configuration; flags that it leaves out take vLLM's defaults."""
        return self.plan_effective(self.resolve(config))

    def footprint(self, values: Effective) -> Footprint:
        """What one rank of this configuration holds, by the units that its flags multiply."""
        split = (max(1, values.tensor_parallel), max(1, values.pipeline_parallel))
        found = self._footprints.get(split)
        if found is None:
            found = self._footprints[split] = Footprint.of(self.shape, *split)
        return found

    def plan_effective(self, values: Effective) -> MemoryPlan:
        """The memory of effective values."""
        card = self.footprint(values)
        weights = card.weights_gib + self.correction.weights_gib
        activation = graphs = outside = 0.0
        if self._cpu:
            other = _CPU_PROCESS_GIB
            available = self._cpu_kv_gib(values, weights)
        else:
            activation = self._activation_gib(values, card)
            graphs = self._graph_gib(values, card)
            if not self._graphs_inside:
                graphs, outside = 0.0, graphs
            other = _OTHER_GIB + self.correction.other_gib
            if values.tensor_parallel > 1:
                other += _COLLECTIVES_GIB
            if values.kv_cache_memory_bytes is not None:
                available = values.kv_cache_memory_bytes / GIB
            else:
                used = weights + activation + graphs + other
                share = values.utilization if 0.0 <= values.utilization <= 1.0 else 1.0
                available = share * self.gpu.memory_gib - used
        per_token = card.kv_bytes_per_token_fp8 if values.kv_fp8 else card.kv_bytes_per_token
        block = max(1, values.block_size)
        blocks = max(0, int(available * GIB / (per_token * block)))
        return MemoryPlan(
            weights, activation, graphs, other, available, blocks * block, block, blocks, outside
        )

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
        if self._cpu or values.kv_cache_memory_bytes is not None:
            return self  # such a size was asked for: it teaches nothing
        card = self.footprint(values)
        if kv_gib is None:
            if not kv_tokens:
                return self
            per_token = card.kv_bytes_per_token_fp8 if values.kv_fp8 else card.kv_bytes_per_token
            kv_gib = kv_tokens * per_token / GIB
        learned = self.correction
        if weights_gib is not None:
            learned = replace(learned, weights_gib=weights_gib - card.weights_gib)
        model = MemoryModel(self.gpu, self.shape, self.version, learned)
        peaks = model._peaks_gib(values, card)
        plan = model.plan_effective(values)
        peak = plan.activation_gib + plan.kv_gib - kv_gib
        # the term that sets the peak takes what is missing; the other only what it would overshoot by
        forward, sampler = (
            max(0.0, peak) - term if term == max(peaks) or term > peak else 0.0 for term in peaks
        )
        learned = Correction(
            learned.weights_gib,
            learned.forward_gib + forward,
            learned.sampler_gib + sampler,
            learned.other_gib + min(0.0, peak),
        )
        return MemoryModel(self.gpu, self.shape, self.version, learned)

    def _peaks_gib(self, values: Effective, card: Footprint) -> tuple[float, float]:
        tokens = values.max_num_batched_tokens
        return (
            card.forward_gib(tokens) + self.correction.forward_gib,
            card.sampler_gib(values.max_num_seqs, tokens) + self.correction.sampler_gib,
        )

    def _activation_gib(self, values: Effective, card: Footprint) -> float:
        """The profiling run's peak, which its forward pass or its sampler sets."""
        return max(0.0, *self._peaks_gib(values, card))

    def _graph_gib(self, values: Effective, card: Footprint) -> float:
        sizes = effective_capture_sizes(values, self.version)
        return card.graph_gib(len(sizes), bisect_right(sizes, values.max_num_seqs))

    def _cpu_kv_gib(self, values: Effective, weights: float) -> float:
        """The size asked for by flag or environment (vllm/v1/worker/cpu_worker.py), as far as the host's
        memory goes.
        """
        if values.kv_cache_memory_bytes is not None:
            asked = values.kv_cache_memory_bytes / GIB
        else:
            space = os.environ.get(_CPU_KV_ENV, "")
            asked = float(space) if space.isdigit() and int(space) else CPU_KV_GIB
        return min(asked, self.gpu.memory_gib - weights - _CPU_PROCESS_GIB)


def _graphs_inside(version: str) -> bool:
    """Whether graphs are part of the budget: from 0.20.2 on, unless the environment says otherwise, which
    vLLM heeds from 0.18 on.
    """
    said = os.environ.get(_GRAPHS_ENV)
    if said in ("0", "1") and at_least(version, "0.18"):
        return said == "1"
    return at_least(version, "0.20.2")


def plan_memory(gpu: Gpu, shape: ModelShape, config: Mapping[str, FlagValue], version: str) -> MemoryPlan:
    """The memory of one configuration on one card of `gpu`, before any launch corrected it."""
    return MemoryModel(gpu, shape, version).plan(config)
