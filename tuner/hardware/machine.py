"""The machine in figures that may be passed on: no host name, no path."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from tuner.hardware.gpu import Gpu
from tuner.hardware.host import host_memory_gib


def describe_machine(
    gpu: Gpu, *, driver: str | None, vllm_version: str, packages: Path | None = None
) -> dict[str, Any]:
    """GPU and count, driver, versions of vLLM and torch (found in the folder `packages`), CPU, cores that may
    be used, memory in GiB; what cannot be found out is left out.
    """
    found = {
        "gpu": gpu.name,
        "gpu_count": gpu.count,
        "driver": driver,
        "vllm": vllm_version,
        "torch": installed_version("torch", packages),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": host_memory_gib(),
    }
    return {name: value for name, value in found.items() if value is not None}


def installed_version(name: str, packages: Path | None) -> str | None:
    """The version of a distribution by the name of its metadata in a folder of packages."""
    if packages is None:
        return None
    try:
        names = sorted(folder.name for folder in packages.glob(f"{name}-*.dist-info"))
    except OSError:
        return None
    return names[-1].removeprefix(f"{name}-").removesuffix(".dist-info") if names else None


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The CPU's name as the kernel says it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next((name for name in names if name), None) or platform.processor() or None
