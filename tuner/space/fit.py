"""Whether a model fits a GPU at all, and how many cards it would take."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.errors import Infeasible
from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape, weight_bytes
from tuner.space.footprint import GIB, Footprint
from tuner.space.memory import MemoryModel, MemoryPlan

_RECENT = "0.21.0"
_MOST_GPUS = 64
# A server with less of the card than this left for KV cache starts, but serves hardly anybody.
_USEFUL_KV_SHARE = 0.1
# The least that a launch can ask for: everything else of the card is then KV cache.
_LEAST = {"max-num-seqs": 1, "max-num-batched-tokens": 256, "gpu-memory-utilization": 0.98}


def tensor_parallel_sizes(shape: ModelShape, count: int) -> Iterator[int]:
    """The tensor-parallel sizes up to `count` that divide the model's heads, ascending."""
    return (tp for tp in range(1, count + 1) if shape.heads % tp == 0 and _kv_heads_split(shape, tp))


def _kv_heads_split(shape: ModelShape, tp: int) -> bool:
    """KV heads are split evenly, or each is copied to the same number of ranks."""
    return shape.mla is not None or shape.kv_heads % tp == 0 or tp % shape.kv_heads == 0


def gpus_needed(gpu: Gpu, shape: ModelShape, version: str = _RECENT) -> int | None:
    """The smallest number of such cards that serves the model by tensor parallelism: weights, activations and
    at least a tenth of each card for KV cache, at vLLM's default utilisation. None where 64 do not do.
    """
    model = MemoryModel(gpu, shape, version)
    for tp in tensor_parallel_sizes(shape, 1 if gpu.platform is Platform.CPU else _MOST_GPUS):
        plan = model.plan({"tensor-parallel-size": tp})
        if plan.kv_gib >= _USEFUL_KV_SHARE * gpu.memory_gib:
            return tp
    return None


def check_feasible(gpu: Gpu, shape: ModelShape, version: str) -> None:
    """Refuses a model that no flag can make fit the cards that are there.

    Raises:
        Infeasible: with the sum, and the smallest GPU count that would do.
    """
    model = MemoryModel(gpu, shape, version)
    best: MemoryPlan | None = None
    for tp in tensor_parallel_sizes(shape, gpu.count):
        plan = model.plan(_LEAST | {"tensor-parallel-size": tp})
        if plan.kv_blocks > 1:
            return
        best = plan
    assert best is not None
    weights = weight_bytes(shape)
    room = gpu.memory_gib * gpu.count
    what = (
        f"{shape.name} cannot fit {gpu.label}: {weights / 1e9:.0f} GB ({weights / GIB:.0f} GiB) of weights "
        f"against {_marketed_gb(gpu):.0f} GB ({room:.1f} GiB) of memory"
    )
    if weights / GIB < room:
        what += (
            f"; a card would hold {best.weights_gib:.1f} GiB of weights and needs "
            f"{best.activation_gib + best.graph_gib + best.other_gib:.1f} GiB for activations and CUDA itself"
        )
    raise Infeasible(what, _what_would_do(gpu, shape, version))


def _marketed_gb(gpu: Gpu) -> float:
    """The card's memory as its name has it ("A100-80G": 80), which is the figure that users know."""
    tail = next((p for p in reversed(gpu.name.split("-")) if p.endswith("G") and p[:-1].isdigit()), None)
    return gpu.count * (float(tail[:-1]) if tail else gpu.memory_gib * GIB / 1e9)


def _what_would_do(gpu: Gpu, shape: ModelShape, version: str) -> str:
    if gpu.platform is Platform.CPU:
        return f"it needs {Footprint.of(shape, 1).weights_gib:.0f} GiB and more: take a smaller model"
    needed = gpus_needed(gpu, shape, version)
    if needed is None:
        return f"{_MOST_GPUS} of them would not do either: take a larger GPU or a smaller build of the model"
    return f"{needed} x {gpu.name} with --tensor-parallel-size {needed} would do: --gpu {needed}x{gpu.name}"
