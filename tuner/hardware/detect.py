"""Which GPUs are here, asked of NVIDIA's driver through NVML."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from tuner.hardware.catalogue import by_nvml_name
from tuner.hardware.gpu import Gpu
from tuner.hardware.host import GIB
from tuner.hardware.nvml import nvml, text_of, visible

# A card that the catalogue lacks, by compute capability major: GB/s and bf16 TFLOPS of its smallest relative.
_UNKNOWN = {7: (320.0, 65.0), 8: (600.0, 71.0), 9: (2000.0, 148.0), 10: (8000.0, 2250.0), 12: (1000.0, 100.0)}
# CUDA's context and the driver keep this share from what NVML reports as total.
_CUDA_SHARE = 0.9945


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
    with nvml() as library:
        if library is None:
            return []
        for _, handle in visible(library):
            try:
                major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
                gpu = describe(
                    text_of(library.nvmlDeviceGetName(handle)),
                    int(library.nvmlDeviceGetMemoryInfo(handle).total),
                    (int(major), int(minor)),
                )
            except library.NVMLError:
                continue
            seen = counted.get(gpu.name)
            counted[gpu.name] = replace(gpu, count=seen.count + 1 if seen else 1)
    return list(counted.values())


def driver_version() -> str | None:
    """The NVIDIA driver's version, None where there is none."""
    with nvml() as library:
        return text_of(library.nvmlSystemGetDriverVersion()) if library is not None else None
