"""Which GPUs are here, asked of NVIDIA's driver through NVML."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tuner.hardware.catalogue import by_nvml_name
from tuner.hardware.gpu import Gpu
from tuner.hardware.host import GIB

# A card that the catalogue lacks, by compute capability major: GB/s and bf16 TFLOPS of its smallest relative.
_UNKNOWN = {7: (320.0, 65.0), 8: (600.0, 71.0), 9: (2000.0, 148.0), 10: (8000.0, 2250.0), 12: (1000.0, 100.0)}
# CUDA's context and the driver keep this share from what NVML reports as total.
_CUDA_SHARE = 0.9945


@contextmanager
def _nvml() -> Iterator[Any]:
    """NVML, or None where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver, no device: there is no GPU to speak of
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def describe(name: str, memory_bytes: int, capability: tuple[int, int]) -> Gpu:
    """The catalogue's card of that NVML name, else a cautious guess from its memory and compute
    capability.
    """
    known = by_nvml_name(name)
    if known is not None:
        return known
    bandwidth, bf16 = _UNKNOWN.get(capability[0], _UNKNOWN[8])
    return Gpu(
        name=name.replace("NVIDIA ", "").replace(" ", "-"),
        memory_gib=round(memory_bytes / GIB * _CUDA_SHARE, 2),
        bandwidth_gb_s=bandwidth,
        tflops=MappingProxyType({"bf16": bf16, "fp16": bf16}),
        compute_capability=capability,
        nvml_names=(name,),
    )


def detect() -> list[Gpu]:
    """The GPUs that CUDA may use here, cards of one kind counted; [] where there is no NVIDIA driver.

    CUDA_VISIBLE_DEVICES is heeded: indices or UUIDs, up to the first that names no card.
    """
    counted: dict[str, Gpu] = {}
    with _nvml() as nvml:
        if nvml is None:
            return []
        for handle in _visible(nvml):
            try:
                major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
                gpu = describe(
                    _text(nvml.nvmlDeviceGetName(handle)),
                    int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                    (int(major), int(minor)),
                )
            except nvml.NVMLError:
                continue
            seen = counted.get(gpu.name)
            counted[gpu.name] = replace(gpu, count=seen.count + 1 if seen else 1)
    return list(counted.values())


def _visible(nvml: Any) -> list[Any]:
    """Handles of the cards that CUDA_VISIBLE_DEVICES leaves, in its order; all where it is not set."""
    handles = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError:
            handles.append(None)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [handle for handle in handles if handle is not None]
    chosen = []
    for name in (part.strip() for part in named.split(",")):
        handle = _by_name(nvml, handles, name)
        if handle is None:
            break
        chosen.append(handle)
    return chosen


def _by_name(nvml: Any, handles: list[Any], name: str) -> Any:
    """The card of an index ("0") or of the beginning of a UUID ("GPU-8932f937")."""
    if name.isdigit():
        return handles[int(name)] if int(name) < len(handles) else None
    if not name.startswith("GPU-"):
        return None
    return next(
        (h for h in handles if h is not None and _text(nvml.nvmlDeviceGetUUID(h)).startswith(name)), None
    )


def driver_version() -> str | None:
    """The NVIDIA driver's version, None where there is none."""
    with _nvml() as nvml:
        return _text(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else None
