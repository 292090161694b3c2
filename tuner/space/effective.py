"""The values in force of a configuration: what it sets, and vLLM's defaults for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.hardware import Gpu
from tuner.models import ModelShape
from tuner.space.config import LaunchConfig
from tuner.space.defaults import effective_defaults
from tuner.spec import FlagValue

AUTO = 0
"""`max_model_len` where vLLM fits it to the memory (`auto` or -1)."""
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def whole(value: object) -> int | None:
    """A whole number of tokens or sequences; vLLM also reads "8k" (thousands) and "8K" (1024s)."""
    if isinstance(value, str):
        text = value.strip()
        factor = _SUFFIXES.get(text[-1:], 1)
        try:
            return int(float(text.removesuffix(text[-1:]) if factor != 1 else text) * factor)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, int | float) and value == value and abs(value) != float("inf"):
        return int(value)
    return None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def truth(value: object, default: bool) -> bool:
    """A switch; None leaves it to the default."""
    if value is None:
        return default
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


@dataclass(frozen=True, slots=True)
class Effective:
    """A configuration in numbers. `max_model_len` AUTO: fitted to memory. `kv_bytes` None: as the model."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    max_model_len: int
    utilization: float
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    chunked_prefill: bool
    eager: bool
    kv_bytes: float | None
    kv_cache_memory_bytes: int | None
    capture_sizes: tuple[int, ...] | None
    max_capture_size: int | None


class Resolver:
    """Fills configurations with the defaults of one GPU, model and version."""

    def __init__(self, gpu: Gpu, shape: ModelShape, version: str) -> None:
        self.defaults: Mapping[str, Any] = effective_defaults(gpu, shape, version)

    def __call__(self, config: Mapping[str, FlagValue]) -> Effective:
        """The effective values. A value of the wrong type counts as not set: the flag table refuses it."""
        flags = dict(config.items_) if isinstance(config, LaunchConfig) else config
        get, defaults = flags.get, self.defaults

        def count(flag: str) -> int:
            found = whole(get(flag))
            return int(defaults[flag]) if found is None else found

        length = get("max-model-len")
        max_model_len = AUTO if length in ("auto", "-1", -1) else count("max-model-len")
        batched = whole(get("max-num-batched-tokens"))
        seqs = whole(get("max-num-seqs"))
        factor = 2 if get("performance-mode") == "throughput" else 1
        chunked = truth(get("enable-chunked-prefill"), True)
        batched_set = batched is not None
        if batched is None:
            batched = int(defaults["max-num-batched-tokens"]) * factor
            if not chunked:
                batched = max(batched, max_model_len)
        if seqs is None:
            seqs = int(defaults["max-num-seqs"]) * factor
            seqs = min(seqs, batched) if batched_set else seqs
        utilization = _number(get("gpu-memory-utilization"))
        sizes = get("cudagraph-capture-sizes")
        return Effective(
            max_num_seqs=seqs,
            max_num_batched_tokens=batched,
            block_size=count("block-size"),
            max_model_len=max_model_len,
            utilization=float(defaults["gpu-memory-utilization"]) if utilization is None else utilization,
            tensor_parallel=count("tensor-parallel-size"),
            pipeline_parallel=count("pipeline-parallel-size"),
            data_parallel=count("data-parallel-size"),
            chunked_prefill=chunked,
            eager=truth(get("enforce-eager"), False),
            kv_bytes=1.0 if str(get("kv-cache-dtype")).startswith("fp8") else None,
            kv_cache_memory_bytes=whole(get("kv-cache-memory-bytes")) or None,
            capture_sizes=_sizes(sizes) if isinstance(sizes, list | tuple) else None,
            max_capture_size=whole(get("max-cudagraph-capture-size")),
        )


def _sizes(values: Any) -> tuple[int, ...]:
    return tuple(sorted({n for v in values if (n := whole(v)) is not None and n > 0}))
