"""Spellings lead to the right card, figures are plausible, and a wrong name gets a useful answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.hardware import Platform, catalogue, find_gpu
from tuner.hardware.catalogue import by_nvml_name

CARDS = sorted(name for name in catalogue() if name != "cpu")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("A100-80G", "A100-80G"),
        ("a100-80g", "A100-80G"),
        ("A100_80GB", "A100-80G"),
        ("a100 80 GiB", "A100-80G"),
        ("NVIDIA A100-SXM4-80GB", "A100-80G"),
        ("A100-PCIe-80G", "A100-80G-PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100-80G-PCIe"),
        ("2xA100-80G", "2xA100-80G"),
        ("8 x h200", "8xH200-141G"),
        ("4X H100", "4xH100-80G"),
        ("1xL4", "L4-24G"),
        ("H200", "H200-141G"),
        ("H100-SXM", "H100-80G"),
        ("NVIDIA H100 80GB HBM3", "H100-80G"),
        ("H100 NVL", "H100-NVL-94G"),
        ("RTX 4090", "RTX4090-24G"),
        ("NVIDIA GeForce RTX 4090", "RTX4090-24G"),
        ("rtx6000-ada-48g", "RTX6000-Ada-48G"),
        ("A6000", "A6000-48G"),
        ("Tesla T4", "T4-16G"),
        ("CPU", "cpu"),
    ],
)
def test_spellings(text: str, label: str) -> None:
    assert find_gpu(text).label == label


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("A100", "A100-40G or A100-80G"),
        ("H300", "H200-141G"),
        ("A100-81G", "A100-80G"),
        ("toaster", "known: "),
        ("", "known: "),
        ("2x", "known: "),
        ("0xH200", "2xA100-80G"),
        ("9999xH200", "2xA100-80G"),
        ("2xcpu", "write cpu"),
    ],
)
def test_a_wrong_name_is_answered(text: str, hint: str) -> None:
    with pytest.raises(BadRequest) as error:
        find_gpu(text)
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(max_size=30))
def test_any_text_gives_a_card_or_one_line(text: str) -> None:
    try:
        assert find_gpu(text).count >= 1
    except BadRequest as error:
        assert error.what


@pytest.mark.parametrize("name", CARDS)
def test_figures_agree_with_the_name(name: str) -> None:
    gpu = catalogue()[name]
    marketed = float(name.rsplit("G", 1)[0].rsplit("-", 1)[-1]) if "PCIe" not in name else 80.0
    # CUDA shows a little less than the marketed gigabytes, whether those are of 10^9 or of 2^30 bytes
    assert 0.9 * marketed * 1e9 / 2**30 < gpu.memory_gib < marketed
    assert gpu.bandwidth_gb_s > 100 and gpu.tflops["bf16"] > 10
    assert gpu.compute_capability >= (7, 0)
    # fp8 tensor cores came with Ada and Hopper, and are about twice as fast as bf16
    assert ("fp8" in gpu.tflops) == (gpu.compute_capability >= (8, 9))
    assert 1.9 < gpu.tflops.get("fp8", 2 * gpu.tflops["bf16"]) / gpu.tflops["bf16"] < 2.1
    assert find_gpu(name) == gpu
    assert find_gpu(f"3x{name}").count == 3


@pytest.mark.parametrize("name", CARDS)
def test_nvml_names_come_back_to_their_card(name: str) -> None:
    for nvml in catalogue()[name].nvml_names:
        found = by_nvml_name(f"NVIDIA {nvml}")
        assert found is not None and found.name == name


def test_published_figures() -> None:
    a100, h200 = find_gpu("A100-80G"), find_gpu("H200")
    assert (a100.bandwidth_gb_s, a100.tflops["bf16"], a100.memory_gib) == (2039, 312, 79.25)
    assert (h200.bandwidth_gb_s, h200.tflops["bf16"], h200.memory_gib) == (4800, 989, 139.80)


def test_the_cpu_is_this_host() -> None:
    cpu = find_gpu("cpu")
    assert cpu.platform is Platform.CPU
    assert 0.25 < cpu.memory_gib < 64 * 1024
