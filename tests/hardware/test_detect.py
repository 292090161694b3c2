"""Detection through NVML; a stand-in library where there is no driver."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tuner.hardware import Gpu, detect, driver_version
from tuner.hardware.detect import describe

GIB = 2**30


class NvmlError(Exception):
    """NVML's own error."""


def library(
    cards: list[tuple[object, int, tuple[int, int]]], broken: tuple[int, ...] = ()
) -> SimpleNamespace:
    """A pynvml of these cards (name, bytes, compute capability); `broken` indices raise."""

    def handle(index: int) -> int:
        if index in broken:
            raise NvmlError("lost")
        return index

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda h: cards[h][0],
        nvmlDeviceGetUUID=lambda h: f"GPU-{h}000-aaaa",
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=cards[h][1]),
        nvmlDeviceGetCudaComputeCapability=lambda h: cards[h][2],
        nvmlSystemGetDriverVersion=lambda: b"580.82.07",
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda lib: monkeypatch.setitem(sys.modules, "pynvml", lib)


def test_cards_of_one_kind_are_counted(install) -> None:
    card = ("NVIDIA A100-SXM4-80GB", 80 * GIB, (8, 0))
    install(library([card, card, (b"NVIDIA L4", 23 * GIB, (8, 9))]))
    assert [gpu.label for gpu in detect()] == ["2xA100-80G", "L4-24G"]
    assert driver_version() == "580.82.07"


def test_a_lost_card_is_left_out(install) -> None:
    card = ("NVIDIA H200", 141 * GIB, (9, 0))
    install(library([card, card], broken=(0,)))
    assert [gpu.label for gpu in detect()] == ["H200-141G"]


@pytest.mark.parametrize(
    ("named", "labels"),
    [
        ("0", ["H200-141G"]),
        ("0,2", ["2xH200-141G"]),
        ("1", ["L4-24G"]),
        (" 2 , 1 ", ["H200-141G", "L4-24G"]),
        ("GPU-1", ["L4-24G"]),
        ("0,7,1", ["H200-141G"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_only_visible_cards_count(
    install, monkeypatch: pytest.MonkeyPatch, named: str, labels: list[str]
) -> None:
    h200 = ("NVIDIA H200", 141 * GIB, (9, 0))
    install(library([h200, ("NVIDIA L4", 23 * GIB, (8, 9)), h200]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert [gpu.label for gpu in detect()] == labels


def test_no_driver_is_no_gpu(install) -> None:
    def fail() -> None:
        raise NvmlError("Driver Not Loaded")

    install(SimpleNamespace(nvmlInit=fail, NVMLError=NvmlError))
    assert detect() == []
    assert driver_version() is None


def test_no_library_is_no_gpu(install) -> None:
    install(None)  # makes the import fail
    assert detect() == []
    assert driver_version() is None


def test_the_real_library_answers() -> None:
    assert all(isinstance(gpu, Gpu) and gpu.count >= 1 for gpu in detect())
    assert not detect() or driver_version()


def test_an_unknown_card_is_described_by_what_it_says() -> None:
    gpu = describe("NVIDIA Something New", 100 * GIB, (10, 0))
    assert gpu.name == "Something-New"
    assert 98 < gpu.memory_gib < 100
    assert gpu.compute_capability == (10, 0)
