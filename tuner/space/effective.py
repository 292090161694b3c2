"""The values in force of a configuration: what it sets, and vLLM's defaults for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tuner.hardware import Gpu
from tuner.models import ModelShape
from tuner.space.config import LaunchConfig
from tuner.space.defaults import effective_defaults
from tuner.spec import FlagValue

AUTO = -1
"""`max_model_len` where vLLM fits it to the memory (`auto` or -1)."""
_AUTO = ("auto", "-1", -1)
_COUNTS = ("max-num-seqs", "max-num-batched-tokens", "block-size", "max-model-len")
_MOST = 10**15
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def whole(value: object) -> int | None:
    """A whole number of tokens or sequences; vLLM also reads "8k" (thousands) and "8K" (1024s)."""
    if value is None or (type(value) is int and -_MOST < value < _MOST):
        return value
    if isinstance(value, str):
        text = value.strip()
        factor = _SUFFIXES.get(text[-1:], 1)
        try:
            value = float(text.removesuffix(text[-1:]) if factor != 1 else text) * factor
        except ValueError:
            return None
    if not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return int(max(-_MOST, min(value, _MOST)))


def _number(value: object, default: float) -> float:
    try:
        found = float(value) if isinstance(value, int | float | str) else default
    except ValueError:
        return default
    return found if found == found else default


def truth(value: object, default: bool) -> bool:
    """A switch; None leaves it to the default."""
    if type(value) is bool:
        return value
    if value is None:
        return default
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


class Effective(NamedTuple):
    """A configuration in numbers. `max_model_len` AUTO: fitted to memory."""

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
    kv_fp8: bool
    kv_cache_memory_bytes: int | None
    capture_sizes: tuple[int, ...] | None
    max_capture_size: int | None


class Resolver:
    """Fills configurations with the defaults of one GPU, model and version."""

    def __init__(self, gpu: Gpu, shape: ModelShape, version: str) -> None:
        defaults: dict[str, Any] = dict(effective_defaults(gpu, shape, version))
        self.defaults: Mapping[str, FlagValue] = defaults
        self._counts = {flag: int(defaults[flag]) for flag in _COUNTS}
        self._utilization = float(defaults["gpu-memory-utilization"])

    def __call__(self, config: Mapping[str, FlagValue]) -> Effective:
        """The effective values. A value of the wrong type counts as not set: the flag table refuses it."""
        flags = dict(config.items_) if isinstance(config, LaunchConfig) else config
        get, counts = flags.get, self._counts
        length = get("max-model-len")
        max_model_len = AUTO if length in _AUTO else _count(length, counts["max-model-len"])
        chunked = truth(get("enable-chunked-prefill"), True)
        seqs, batched = whole(get("max-num-seqs")), whole(get("max-num-batched-tokens"))
        if seqs is None or batched is None:
            factor = 2 if get("performance-mode") == "throughput" else 1
            length = counts["max-model-len"] if max_model_len == AUTO else max_model_len
            seqs, batched = self._batch(seqs, batched, factor, length, chunked)
        utilization = get("gpu-memory-utilization")
        if type(utilization) is not float:
            utilization = _number(utilization, self._utilization)
        sizes = get("cudagraph-capture-sizes")
        kv_dtype = get("kv-cache-dtype")
        return Effective(
            seqs,
            batched,
            _count(get("block-size"), counts["block-size"]),
            max_model_len,
            utilization,
            _count(get("tensor-parallel-size"), 1),
            _count(get("pipeline-parallel-size"), 1),
            _count(get("data-parallel-size"), 1),
            chunked,
            truth(get("enforce-eager"), False),
            isinstance(kv_dtype, str) and kv_dtype.startswith("fp8"),
            whole(get("kv-cache-memory-bytes")) or None,
            _sizes(sizes) if isinstance(sizes, list | tuple) else None,
            whole(get("max-cudagraph-capture-size")),
        )

    def _batch(
        self, seqs: int | None, batched: int | None, factor: int, length: int, chunked: bool
    ) -> tuple[int, int]:
        """What vLLM takes where one of both is not set: its defaults (doubled in throughput mode), no fewer
        tokens than a whole prompt needs, no more than all sequences hold, no more sequences than tokens
        (vllm/engine/arg_utils.py, _set_default_max_num_seqs_and_batched_tokens_args).
        """
        wanted = self._counts["max-num-seqs"] * factor if seqs is None else seqs
        if batched is None:
            batched = self._counts["max-num-batched-tokens"] * factor
            batched = batched if chunked else max(batched, length)
            batched = min(batched, max(1, wanted * length))
        return (min(wanted, batched) if seqs is None else seqs), batched


def _count(value: object, default: int) -> int:
    if value is None:
        return default
    found = whole(value)
    return default if found is None else found


def _sizes(values: Any) -> tuple[int, ...]:
    return tuple(sorted({n for v in values if (n := whole(v)) is not None and n > 0}))
