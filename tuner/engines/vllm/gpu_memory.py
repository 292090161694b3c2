"""Memory in use on the GPUs that a server would take, through NVML."""

from __future__ import annotations

import os
import time

TOLERANCE_BYTES = 512 * 2**20


def used_bytes() -> tuple[int, ...]:
    """Bytes in use on each visible GPU (CUDA_VISIBLE_DEVICES by index or UUID); () without NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library: there is no GPU to look at
        return ()
    try:
        return tuple(int(pynvml.nvmlDeviceGetMemoryInfo(device).used) for device in _visible(pynvml))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def wait_back(before: tuple[int, ...], limit_s: float) -> str | None:
    """Wait until no GPU uses more than before (and a tolerance); a note where the limit passes."""
    deadline = time.monotonic() + limit_s
    while before:
        now = used_bytes()
        over = [n - b for n, b in zip(now, before, strict=False)]
        if max(over, default=0) <= TOLERANCE_BYTES:
            return None
        if time.monotonic() > deadline:
            return (
                f"{max(over) / 2**30:.1f} GiB of GPU memory are still in use {limit_s:.0f} s "
                "after the server was stopped"
            )
        time.sleep(0.25)
    return None


def _visible(pynvml: object) -> list[object]:
    nvml: object = pynvml
    by_index = nvml.nvmlDeviceGetHandleByIndex  # type: ignore[attr-defined]
    by_uuid = nvml.nvmlDeviceGetHandleByUUID  # type: ignore[attr-defined]
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [by_index(i) for i in range(nvml.nvmlDeviceGetCount())]  # type: ignore[attr-defined]
    words = [word.strip() for word in named.split(",") if word.strip() not in ("", "-1")]
    return [by_index(int(word)) if word.isdigit() else by_uuid(word) for word in words]
