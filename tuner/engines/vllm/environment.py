"""The environment of a server: constant over a study, for VLLM_* variables enter vLLM's compile cache key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tuner.hardware import Platform
from tuner.space.memory import CPU_KV_GIB

_ALWAYS = {
    "NO_COLOR": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # POST /reset_prefix_cache; the server listens on this machine only
}


def added_environment(platform: Platform, model: str, extra: Mapping[str, str]) -> dict[str, str]:
    """What is set beside the user's own environment; `extra` goes before all."""
    added = dict(_ALWAYS)
    if Path(model).is_dir():
        added["HF_HUB_OFFLINE"] = "1"
    if platform is Platform.CPU and "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
        added["VLLM_CPU_KVCACHE_SPACE"] = f"{CPU_KV_GIB:.0f}"
    return {**added, **extra}


def server_environment(added: Mapping[str, str], python: Path | None) -> dict[str, str]:
    """This process's environment and what is added, with vLLM's own commands (ninja, …) first on PATH."""
    environment = {**os.environ, **added}
    environment.pop("VLLM_API_KEY", None)  # nobody but this process talks to it
    if python is not None:
        environment["PATH"] = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
        environment.pop("PYTHONHOME", None)
    return environment
