"""Data-sheet figures of the GPUs that people serve on, and how a user's spelling finds one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tuner.errors import BadRequest
from tuner.hardware.gpu import Gpu, Platform
from tuner.hardware.host import host_memory_gib


def _gpu(
    name: str,
    memory_gib: float,
    bandwidth_gb_s: float,
    bf16: float,
    capability: tuple[int, int],
    nvml: tuple[str, ...],
    *,
    fp8: float = 0.0,
    int8: float = 0.0,
    link: float = 0.0,
    host_link: float = 25.0,
) -> Gpu:
    tflops = {"bf16": bf16, "fp16": bf16}
    tflops |= {"fp8": fp8} if fp8 else {}
    tflops |= {"int8": int8} if int8 else {}
    return Gpu(
        name=name,
        memory_gib=memory_gib,
        bandwidth_gb_s=bandwidth_gb_s,
        tflops=MappingProxyType(tflops),
        compute_capability=capability,
        link_gb_s=link,
        host_link_gb_s=host_link,
        nvml_names=nvml,
    )


# Bandwidth, dense tensor-core TFLOPS (half of what is quoted with sparsity; fp32 accumulation on GeForce) and
# NVLink (half of the quoted total: one direction) are NVIDIA's data sheets and architecture white papers,
# named behind each row. Memory is what CUDA reports as total, as seen in torch's and vLLM's messages.
_CARDS = (
    # "NVIDIA A100 Tensor Core GPU" data sheet
    _gpu("A100-40G", 39.39, 1555, 312, (8, 0), ("A100-SXM4-40GB", "A100-PCIE-40GB"), int8=624, link=300),
    _gpu("A100-80G", 79.25, 2039, 312, (8, 0), ("A100-SXM4-80GB", "A100-SXM-80GB"), int8=624, link=300),
    _gpu("A100-80G-PCIe", 79.25, 1935, 312, (8, 0), ("A100 80GB PCIe",), int8=624, link=32),
    # "NVIDIA A800": an A100 with NVLink at 400 GB/s in all
    _gpu("A800-80G", 79.25, 2039, 312, (8, 0), ("A800-SXM4-80GB", "A800 80GB PCIe"), int8=624, link=200),
    # "NVIDIA A30", "NVIDIA A10", "NVIDIA A40", "NVIDIA RTX A6000" data sheets
    _gpu("A30-24G", 23.50, 933, 165, (8, 0), ("A30",), int8=330, link=100),
    _gpu("A10-24G", 21.98, 600, 125, (8, 6), ("A10", "A10G"), int8=250),
    _gpu("A40-48G", 44.35, 696, 149.7, (8, 6), ("A40",), int8=299.3, link=56),
    _gpu("A6000-48G", 47.43, 768, 154.8, (8, 6), ("RTX A6000",), int8=309.7, link=56),
    # "NVIDIA H100" data sheet (SXM5, PCIe, NVL)
    _gpu(
        "H100-80G", 79.19, 3350, 989, (9, 0), ("H100 80GB HBM3",), fp8=1979, int8=1979, link=450, host_link=55
    ),
    _gpu(
        "H100-PCIe-80G", 79.18, 2000, 756, (9, 0), ("H100 PCIe",), fp8=1513, int8=1513, link=64, host_link=55
    ),
    _gpu(
        "H100-NVL-94G", 93.11, 3900, 835, (9, 0), ("H100 NVL",), fp8=1671, int8=1671, link=300, host_link=55
    ),
    # H800: an H100 with NVLink at 400 GB/s in all
    _gpu(
        "H800-80G",
        79.19,
        3350,
        989,
        (9, 0),
        ("H800", "H800 80GB HBM3", "H800 SXM5"),
        fp8=1979,
        int8=1979,
        link=200,
        host_link=55,
    ),
    # "NVIDIA H20" product brief
    _gpu("H20-96G", 95.00, 4000, 148, (9, 0), ("H20",), fp8=296, int8=296, link=450, host_link=55),
    # "NVIDIA H200" data sheet; the memory follows from vLLM's log at two utilisations
    _gpu("H200-141G", 139.80, 4800, 989, (9, 0), ("H200",), fp8=1979, int8=1979, link=450, host_link=55),
    _gpu(
        "H200-NVL-141G", 139.80, 4800, 835, (9, 0), ("H200 NVL",), fp8=1671, int8=1671, link=450, host_link=55
    ),
    # "NVIDIA GH200 Grace Hopper" data sheet, 96 GB HBM3; NVLink-C2C to the host
    _gpu(
        "GH200-96G",
        94.50,
        4000,
        989,
        (9, 0),
        ("GH200 480GB",),
        fp8=1979,
        int8=1979,
        link=450,
        host_link=450,
    ),
    # "NVIDIA DGX B200" data sheet, per GPU
    _gpu("B200-180G", 178.35, 8000, 2250, (10, 0), ("B200",), fp8=4500, int8=4500, link=900, host_link=55),
    # "NVIDIA L4", "NVIDIA L40", "NVIDIA L40S" data sheets
    _gpu("L4-24G", 22.03, 300, 121, (8, 9), ("L4",), fp8=242, int8=242),
    _gpu("L40-48G", 44.39, 864, 181, (8, 9), ("L40",), fp8=362, int8=362),
    _gpu("L40S-48G", 44.39, 864, 362, (8, 9), ("L40S",), fp8=733, int8=733),
    # "NVIDIA Ada GPU Architecture" white paper
    _gpu("RTX4090-24G", 23.64, 1008, 165.2, (8, 9), ("GeForce RTX 4090",), fp8=330.3, int8=660.6),
    _gpu("RTX6000-Ada-48G", 47.50, 960, 364.2, (8, 9), ("RTX 6000 Ada Generation",), fp8=728.5, int8=728.5),
    # "NVIDIA Ampere GA102" white paper
    _gpu("RTX3090-24G", 23.68, 936, 71, (8, 6), ("GeForce RTX 3090",), int8=284, link=56),
    # "NVIDIA RTX Blackwell GPU Architecture" white paper
    _gpu(
        "RTX5090-32G",
        31.36,
        1792,
        209.5,
        (12, 0),
        ("GeForce RTX 5090",),
        fp8=419,
        int8=838,
        host_link=55,
    ),
    _gpu(
        "RTX-PRO-6000-96G",
        94.97,
        1792,
        503.8,
        (12, 0),
        ("RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Workstation Edition"),
        fp8=1007.6,
        int8=1007.6,
        host_link=55,
    ),
    # "NVIDIA V100" and "NVIDIA T4" data sheets; both know fp16 only, which vLLM then uses in place of bf16
    _gpu("V100-32G", 31.74, 900, 125, (7, 0), ("V100-SXM2-32GB", "V100-SXM3-32GB"), link=150, host_link=12),
    _gpu("T4-16G", 14.57, 320, 65, (7, 5), ("Tesla T4", "T4"), int8=130, host_link=12),
)

# People's usual short names; a name without memory is taken where it means one card only.
_ALIASES = {
    "h100": "H100-80G",
    "h100sxm": "H100-80G",
    "h100sxm80g": "H100-80G",
    "h10080gsxm": "H100-80G",
    "h100pcie": "H100-PCIe-80G",
    "h10080gpcie": "H100-PCIe-80G",
    "h100nvl": "H100-NVL-94G",
    "h200": "H200-141G",
    "h200nvl": "H200-NVL-141G",
    "a100sxm40g": "A100-40G",
    "a100sxm80g": "A100-80G",
    "a10080gsxm": "A100-80G",
    "a10080gsxm4": "A100-80G",
    "a100pcie80g": "A100-80G-PCIe",
    "a10g": "A10-24G",
    "a10g24g": "A10-24G",
    "rtxa600048g": "A6000-48G",
    "gh200": "GH200-96G",
    "b200192g": "B200-180G",
    "rtx6000ada": "RTX6000-Ada-48G",
    "rtxpro6000": "RTX-PRO-6000-96G",
}
_COUNTED = re.compile(r"^\s*(\d+)\s*[x×*]\s*(\S.*?)\s*$", re.IGNORECASE)


def _plain(text: str) -> str:
    """Letters and digits only, in lower case; "80GB", "80GiB" and "80g" are the same."""
    text = re.sub(r"(?<=\d)\s*gi?b\b", "g", text.lower())
    return re.sub(r"[^a-z0-9]", "", text.replace("nvidia", "").replace("geforce", ""))


def _spellings() -> dict[str, str]:
    found: dict[str, str] = {}
    short: dict[str, list[str]] = {}
    for card in _CARDS:
        found[_plain(card.name)] = card.name
        for nvml in card.nvml_names:
            found.setdefault(_plain(nvml), card.name)
        short.setdefault(_plain(re.sub(r"-\d+G\b", "", card.name)), []).append(card.name)
    for plain, names in short.items():
        if len(names) == 1:
            found.setdefault(plain, names[0])
    return found | _ALIASES


_BY_NAME = {card.name: card for card in _CARDS}
_SPELLINGS = _spellings()


def _cpu() -> Gpu:
    # A small server CPU: two memory channels, a few cores with AVX-512. Only the order of magnitude counts.
    return Gpu(
        name="cpu",
        memory_gib=host_memory_gib(),
        bandwidth_gb_s=25.0,
        tflops=MappingProxyType({"bf16": 0.3, "fp16": 0.3, "int8": 0.6}),
        host_link_gb_s=25.0,
        platform=Platform.CPU,
    )


def catalogue() -> Mapping[str, Gpu]:
    """Every known device by name; `cpu` has this host's memory."""
    return MappingProxyType({**_BY_NAME, "cpu": _cpu()})


def find_gpu(text: str) -> Gpu:
    """The device of "A100-80G", "2xH200-141G" or "cpu"; case, dashes, "GB" and NVML's own names are accepted.

    Raises:
        BadRequest: unknown, ambiguous ("A100"), or a count that makes no sense; names the nearest.
    """
    counted = _COUNTED.match(text)
    count, name = (int(counted[1]), counted[2]) if counted else (1, text.strip())
    plain = _plain(name)
    if plain == "cpu":
        if count != 1:
            raise BadRequest(f"GPU {text!r}: the CPU counts as one device", "write cpu")
        return _cpu()
    if plain not in _SPELLINGS:
        raise BadRequest(f"GPU {text!r} is not known", _nearest(plain))
    if not 1 <= count <= 1024:
        raise BadRequest(f"GPU {text!r}: {count} cards make no sense", "write it like 2xA100-80G")
    return replace(_BY_NAME[_SPELLINGS[plain]], count=count)


def _nearest(plain: str) -> str:
    begins = [name for name in _BY_NAME if plain and _plain(name).startswith(plain)]
    close = difflib.get_close_matches(plain, _SPELLINGS, n=6, cutoff=0.5)
    names = list(dict.fromkeys(begins + [_SPELLINGS[c] for c in close]))[:3]
    return f"did you mean {' or '.join(names)}?" if names else f"known: {', '.join([*_BY_NAME, 'cpu'])}"


def by_nvml_name(name: str) -> Gpu | None:
    """The card that NVML calls `name` ("NVIDIA H200", "NVIDIA A100-SXM4-80GB"), or None."""
    known = _SPELLINGS.get(_plain(name))
    return _BY_NAME[known] if known else None
