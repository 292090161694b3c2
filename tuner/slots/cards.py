"""The cards of this machine in an order in which neighbours are well connected, and the cores near each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.hardware import Gpu, Platform
from tuner.hardware.detect import describe
from tuner.hardware.nvml import nvml, text_of, visible

_MASK_BITS = 64
_MOST_LINKS = 18


@dataclass(frozen=True, slots=True)
class Card:
    """One card: the word that names it in CUDA_VISIBLE_DEVICES ("" for no GPU), and the CPU cores near it."""

    word: str
    cores: tuple[int, ...] = ()


def cards_here(gpu: Gpu, count: int) -> list[Card]:
    """`count` cards of that kind, NVLink neighbours side by side; by index where NVML does not tell.

    A CPU, and a GPU that is only simulated, have cards without a name.
    """
    if gpu.platform is Platform.CPU:
        return [Card("") for _ in range(count)]
    with nvml() as library:
        if library is None:
            return [Card(word) for word in _words(count)[:count]]
        cards = [(word, handle) for word, handle in visible(library) if _kind(library, handle) == gpu.name]
        cards = cards[:count]
        handles = [handle for _, handle in cards]
        order = neighbours_first(len(cards), lambda a, b: _closeness(library, handles[a], handles[b]))
        return [Card(cards[i][0], _cores(library, handles[i])) for i in order]


def neighbours_first(count: int, closeness: Callable[[int, int], int]) -> list[int]:
    """An order in which aligned groups of two, then four, and so on, are as close as can be.

    Greedy: each card is followed by the closest one that is left; equal closeness keeps the order of indices.
    """
    left, order = list(range(count)), []
    while left:
        first = left.pop(0)
        pair = [first]
        if left:
            second = max(left, key=lambda other: (closeness(first, other), -other))
            left.remove(second)
            pair.append(second)
        order.append(pair)
    while len(order) > 1:
        groups, merged = list(order), []
        while groups:
            one = groups.pop(0)
            if groups:
                other = max(groups, key=lambda g: (sum(closeness(a, b) for a in one for b in g), -g[0]))
                groups.remove(other)
                one = one + other
            merged.append(one)
        order = merged
    return order[0] if order else []


def _words(count: int) -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(index) for index in range(count)]
    return [word for part in named.split(",") if (word := part.strip()) not in ("", "-1")]


def _kind(library: Any, handle: Any) -> str:
    name = library.nvmlDeviceGetName(handle)
    major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
    total = int(library.nvmlDeviceGetMemoryInfo(handle).total)
    return describe(text_of(name), total, (major, minor)).name


def _closeness(library: Any, one: Any, other: Any) -> int:
    """Large where NVLink joins two cards, else by how far up the PCI tree they meet."""
    try:
        status = library.nvmlDeviceGetP2PStatus(one, other, library.NVML_P2P_CAPS_INDEX_NVLINK)
        joined = status == library.NVML_P2P_STATUS_OK
    except Exception:  # an old driver, or cards that know no NVLink: the PCI tree decides
        joined = False
    if joined:
        return 1000 + _direct_links(library, one, other)
    try:
        return -int(library.nvmlDeviceGetTopologyCommonAncestor(one, other))
    except Exception:
        return 0


def _direct_links(library: Any, one: Any, other: Any) -> int:
    """NVLink lanes that end at the other card; 0 through a switch, where all are equally close."""
    try:
        wanted = library.nvmlDeviceGetPciInfo(other).busId
    except Exception:
        return 0
    found = 0
    for link in range(_MOST_LINKS):
        try:
            found += library.nvmlDeviceGetNvLinkRemotePciInfo(one, link).busId == wanted
        except Exception:
            break
    return found


def _cores(library: Any, handle: Any) -> tuple[int, ...]:
    here = usable_cores()
    words = (max(here, default=0) // _MASK_BITS) + 1
    try:
        masks: Sequence[int] = library.nvmlDeviceGetCpuAffinity(handle, words)
    except Exception:
        return ()
    near = {64 * i + bit for i, mask in enumerate(masks) for bit in range(64) if int(mask) >> bit & 1}
    return tuple(core for core in here if core in near)


def usable_cores() -> list[int]:
    """The cores that this process may use, ascending; [] where the system does not say."""
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return []
