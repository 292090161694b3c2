"""What a ready server says of itself, from its log, its /metrics and its /v1/models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.engines.base import ServerFacts
from tuner.engines.vllm import control, diagnose, metrics
from tuner.spec import FlagValue

_CACHE_FLAGS = {
    "block_size": "block-size",
    "gpu_memory_utilization": "gpu-memory-utilization",
    "enable_prefix_caching": "enable-prefix-caching",
    "cache_dtype": "kv-cache-dtype",
}


def collect(
    port: int,
    name: str,
    log: Path,
    *,
    startup_s: float,
    command: tuple[str, ...],
    given: Mapping[str, FlagValue],
    defaults: Mapping[str, FlagValue],
    notes: tuple[str, ...],
) -> ServerFacts:
    """The facts of the server on `port`.

    The effective values are, each over the one before: `defaults` (what vLLM is known to take), what the log
    says, what the flags given were, and what the running server answers. `kv_tokens` is the log's figure, or
    blocks times block size.
    """
    report = diagnose.report_of(log)
    cache = metrics.parse(control.request(port, "/metrics")[1]).cache
    effective: dict[str, FlagValue] = {**defaults, **report.effective, **given}
    effective.update(
        {
            flag: _value(cache[label])
            for label, flag in _CACHE_FLAGS.items()
            if cache.get(label, "None") != "None"
        }
    )
    for entry in control.models(port):
        if entry.get("id") == name and isinstance(entry.get("max_model_len"), int):
            effective["max-model-len"] = entry["max_model_len"]
    kv_tokens = report.kv_tokens or _blocks(cache)
    return ServerFacts(
        startup_s=startup_s,
        kv_tokens=kv_tokens,
        command=command,
        weights_gib=report.weights_gib or 0.0,
        effective=effective,
        log=log,
        notes=notes,
    )


def _blocks(cache: Mapping[str, str]) -> int:
    blocks, size = cache.get("num_gpu_blocks", ""), cache.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdigit() and size.isdigit() else 0


def _value(text: str) -> FlagValue:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
