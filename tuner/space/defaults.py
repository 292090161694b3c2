"""The values that vLLM itself takes for flags that are left to it, by version and platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape
from tuner.space.backends import default_block_size
from tuner.space.versions import at_least
from tuner.spec import FlagValue

_LARGE_GIB = 70.0
_LARGEST_GIB = 160.0


@dataclass(frozen=True, slots=True)
class _Where:
    gpu: Gpu
    shape: ModelShape
    version: str

    @property
    def cpu(self) -> bool:
        return self.gpu.platform is Platform.CPU

    @property
    def large(self) -> bool:
        """vLLM's test for "H100 and alike": its name says whether a card is an A100."""
        names = (self.gpu.name, *self.gpu.nvml_names)
        return self.gpu.memory_gib >= _LARGE_GIB and not any("a100" in name.lower() for name in names)


def _max_num_seqs(where: _Where) -> int:
    if where.cpu:
        return 128
    return 1024 if where.large else 256


def _max_num_batched_tokens(where: _Where) -> int:
    if where.cpu:
        return 2048
    if where.gpu.memory_gib >= _LARGEST_GIB and at_least(where.version, "0.28"):
        return 16384
    return 8192 if where.large else 2048


def _gpu_memory_utilization(where: _Where) -> float:
    return 0.92 if at_least(where.version, "0.20") else 0.9


# vllm/engine/arg_utils.py (get_batch_defaults for the API server) and vllm/config/*.py, 0.16 to 0.33.
_DEFAULTS: Mapping[str, Callable[[_Where], FlagValue]] = {
    "max-num-seqs": _max_num_seqs,
    "max-num-batched-tokens": _max_num_batched_tokens,
    "block-size": lambda w: default_block_size(w.gpu, w.shape, w.version),
    "max-model-len": lambda w: w.shape.max_model_len,
    "gpu-memory-utilization": _gpu_memory_utilization,
    "enable-prefix-caching": lambda w: True,
    "enable-chunked-prefill": lambda w: True,
    "swap-space": lambda w: 0,
    "kv-cache-dtype": lambda w: "auto",
    "tensor-parallel-size": lambda w: 1,
    "pipeline-parallel-size": lambda w: 1,
    "data-parallel-size": lambda w: 1,
    "async-scheduling": lambda w: not w.cpu,
    "scheduling-policy": lambda w: "fcfs",
    "stream-interval": lambda w: 1,
    "enforce-eager": lambda w: False,
}
_LATER: Mapping[str, tuple[str, FlagValue]] = {
    "performance-mode": ("0.17", "balanced"),
    "optimization-level": ("0.16", 2),
    "max-num-queued-reqs": ("0.29", None),
    "max-num-active-seqs": ("0.31", None),
}


def effective_defaults(gpu: Gpu, shape: ModelShape, version: str) -> dict[str, FlagValue]:
    """The values in force where a launch sets none of these flags; `swap-space` 0 means no host cache.

    Raises:
        BadRequest: `version` is not a version.
    """
    where = _Where(gpu, shape, version)
    values = {flag: value(where) for flag, value in _DEFAULTS.items()}
    values |= {flag: value for flag, (since, value) in _LATER.items() if at_least(version, since)}
    return values
