"""NVIDIA's driver asked through NVML: the library while it is open, and the cards that CUDA may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def nvml() -> Iterator[Any]:
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


def text_of(value: Any) -> str:
    """A text of NVML, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def visible(library: Any) -> list[tuple[str, Any]]:
    """Word and handle of each card that CUDA_VISIBLE_DEVICES leaves, in its order, up to the first word that
    names none; all by their index where it is not set.
    """
    handles = []
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handles.append(library.nvmlDeviceGetHandleByIndex(index))
        except library.NVMLError:
            handles.append(None)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [(str(index), handle) for index, handle in enumerate(handles) if handle is not None]
    chosen = []
    for word in (part.strip() for part in named.split(",")):
        handle = _by_name(library, handles, word)
        if handle is None:
            break
        chosen.append((word, handle))
    return chosen


def _by_name(library: Any, handles: list[Any], word: str) -> Any:
    """The card of an index ("0") or of the beginning of a UUID ("GPU-8932f937")."""
    if word.isdigit():
        return handles[int(word)] if int(word) < len(handles) else None
    if not word.startswith("GPU-"):
        return None
    return next(
        (h for h in handles if h is not None and text_of(library.nvmlDeviceGetUUID(h)).startswith(word)), None
    )
