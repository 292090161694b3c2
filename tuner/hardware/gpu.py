"""What a GPU is to the tuner: memory, bandwidth and arithmetic, per card, and how many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Platform(StrEnum):
    """The vLLM platform that drives the device."""

    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of device and how many of it; every figure is per card, from the maker's data sheet.

    `memory_gib` is what CUDA reports as total (an A100-80G shows 79.25 GiB), `tflops` is dense arithmetic by
    dtype ("bf16", "fp8", "int8"), `link_gb_s` the bandwidth between cards in one direction.
    """

    name: str
    memory_gib: float
    bandwidth_gb_s: float
    tflops: Mapping[str, float]
    compute_capability: tuple[int, int] = (0, 0)
    link_gb_s: float = 0.0
    host_link_gb_s: float = 25.0
    platform: Platform = Platform.CUDA
    count: int = 1
    nvml_names: tuple[str, ...] = field(default=())

    @property
    def label(self) -> str:
        """The name as users write it: "A100-80G" or "2xA100-80G"."""
        return self.name if self.count == 1 else f"{self.count}x{self.name}"


def card_of(label: str) -> str:
    """The kind of card in "2xH200-141G"."""
    count, times, name = label.partition("x")
    return name if times and count.isdigit() else label
