"""Attention backends by GPU, model and vLLM version, and the KV block sizes that they take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape
from tuner.space.versions import at_least

DEFAULT_BLOCK_SIZE = 16
CPU_BLOCK_SIZE = 128
LITERAL_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
"""What `--block-size` accepts up to vLLM 0.17, whatever the backend; later any whole number is parsed."""


@dataclass(frozen=True, slots=True)
class Backend:
    """An attention backend and the block size whose multiples it takes."""

    name: str
    multiple: int

    def takes(self, block_size: int) -> bool:
        return block_size % self.multiple == 0


_FLASH_ATTN, _FLASHINFER, _TRITON = (Backend(n, 16) for n in ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"))
_TRITON_MLA, _FLASH_ATTN_MLA = Backend("TRITON_MLA", 16), Backend("FLASH_ATTN_MLA", 16)
_FLASHMLA, _CUTLASS_MLA, _FLASHINFER_MLA = (
    Backend("FLASHMLA", 64),
    Backend("CUTLASS_MLA", 128),
    Backend("FLASHINFER_MLA", 32),
)


def backends(gpu: Gpu, shape: ModelShape, version: str) -> tuple[Backend, ...]:
    """The backends that vLLM would try, best first (vllm/platforms/cuda.py, _get_backend_priorities).

    By compute capability: Blackwell data-centre cards (10.x) prefer FlashInfer, Hopper (9.x)
    FlashAttention; MLA on an A100 or any other card has TRITON_MLA alone.
    """
    if gpu.platform is Platform.CPU:
        if shape.mla is not None:  # the platform sets 16 whatever was asked for
            return (Backend("CPU_MLA", 1),)
        return (Backend("CPU_ATTN", 32 if at_least(version, "0.32") else 16),)
    return _cuda_backends(gpu.compute_capability, shape.mla is not None)


@lru_cache(maxsize=64)
def _cuda_backends(capability: tuple[int, int], mla: bool) -> tuple[Backend, ...]:
    major = capability[0]
    if mla:
        if major == 10:
            return (_FLASHINFER_MLA, _CUTLASS_MLA, _FLASHMLA, _TRITON_MLA)
        return (_FLASH_ATTN_MLA, _FLASHMLA, _TRITON_MLA) if major == 9 else (_TRITON_MLA,)
    if major == 10:
        return (_FLASHINFER, _FLASH_ATTN, _TRITON)
    return (_FLASH_ATTN, _FLASHINFER, _TRITON) if major >= 8 else (_FLASHINFER, _TRITON)


def default_block_size(gpu: Gpu, shape: ModelShape, version: str) -> int:
    """The block size without the flag: 16 where the first backend takes it, else that backend's least; 128 on
    a CPU (16 for MLA there).
    """
    if gpu.platform is Platform.CPU:
        return DEFAULT_BLOCK_SIZE if shape.mla is not None else CPU_BLOCK_SIZE
    first = backends(gpu, shape, version)[0]
    return DEFAULT_BLOCK_SIZE if first.takes(DEFAULT_BLOCK_SIZE) else first.multiple


def chosen_backend(gpu: Gpu, shape: ModelShape, version: str, block_size: int) -> Backend | None:
    """The backend that a block size leads to, None where none takes it.

    A size that the best backend does not take silently falls to the next one.
    """
    return next((b for b in backends(gpu, shape, version) if b.takes(block_size)), None)
