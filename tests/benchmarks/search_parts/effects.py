"""Hidden effects: what a real server does and no data sheet says. Each is tied to a flag that relieves it.

Every effect answers with factors on times of the truth; 1.0 where it is silent. `flag` is the flag whose
choice it moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from search_parts.setting import Setting


class Effect:
    """No effect."""

    flag: ClassVar[str] = ""

    def step(self, setting: Setting, batch: int) -> float:
        """Factor on every step with `batch` requests in it."""
        return 1.0

    def chunks(self, setting: Setting, decodes: int, tokens: int) -> float:
        """Factor on a step that computes `tokens` prompt tokens beside `decodes` decoding requests."""
        return 1.0

    def frontend_chunk_s(self, setting: Setting) -> float:
        """Further seconds of the frontend for each streamed chunk."""
        return 0.0

    def dies(self, setting: Setting, preemptions: int) -> bool:
        """Whether the engine dies of a replay with so many preemptions."""
        return False


@dataclass(frozen=True)
class Cliff(Effect):
    """Steps with more than `most` requests are slower by a share, within a few requests: a sampler or an
    attention kernel that falls off its fast path."""

    most: int
    slower: float
    flag: ClassVar[str] = "max-num-seqs"

    def step(self, setting: Setting, batch: int) -> float:
        over = (batch - self.most) / max(0.1 * self.most, 1.0)
        return 1.0 + self.slower * min(max(over, 0.0), 1.0)


@dataclass(frozen=True)
class Backend(Effect):
    """Block sizes below `least` get a slower attention backend, one without full graphs."""

    least: int
    slower: float
    flag: ClassVar[str] = "block-size"

    def step(self, setting: Setting, batch: int) -> float:
        return 1.0 + (self.slower if setting.block < self.least else 0.0)


@dataclass(frozen=True)
class Bookkeeping(Effect):
    """Hashing blocks and keeping the prefix cache holds up every step."""

    slower: float
    flag: ClassVar[str] = "enable-prefix-caching"

    def step(self, setting: Setting, batch: int) -> float:
        return 1.0 + (self.slower if setting.prefixes else 0.0)


@dataclass(frozen=True)
class Stall(Effect):
    """Steps of more than `knee` prompt tokens take more than their share."""

    knee: int
    slower: float
    flag: ClassVar[str] = "max-num-batched-tokens"

    def chunks(self, setting: Setting, decodes: int, tokens: int) -> float:
        return 1.0 + self.slower * min(max(tokens / self.knee - 1.0, 0.0), 1.0)


@dataclass(frozen=True)
class Starved(Effect):
    """Small prompt chunks run at a fraction of the rate: kernels that want large batches."""

    knee: int
    slower: float
    flag: ClassVar[str] = "max-num-batched-tokens"

    def chunks(self, setting: Setting, decodes: int, tokens: int) -> float:
        short = min(setting.batched / self.knee, 1.0)
        return 1.0 + self.slower * (1.0 - short)


@dataclass(frozen=True)
class Fragments(Effect):
    """Above a share of the memory the allocator works at every step, and a full cache kills the engine."""

    most: float
    slower: float
    flag: ClassVar[str] = "gpu-memory-utilization"

    def step(self, setting: Setting, batch: int) -> float:
        over = (setting.utilization - self.most) / 0.02
        return 1.0 + self.slower * min(max(over, 0.0), 1.0)

    def dies(self, setting: Setting, preemptions: int) -> bool:
        return preemptions > 0 and setting.utilization > self.most + 0.045


@dataclass(frozen=True)
class Streams(Effect):
    """Every streamed chunk costs the frontend so much that it, not the GPU, is the limit."""

    chunk_s: float
    flag: ClassVar[str] = "stream-interval"

    def frontend_chunk_s(self, setting: Setting) -> float:
        return self.chunk_s


@dataclass(frozen=True)
class Overlap(Effect):
    """The scheduler that runs beside the step takes the interpreter from it."""

    slower: float
    flag: ClassVar[str] = "async-scheduling"

    def step(self, setting: Setting, batch: int) -> float:
        return 1.0 + (self.slower if setting.overlapped else 0.0)


@dataclass(frozen=True)
class Tables(Effect):
    """Block tables as wide as max-model-len are copied at every step."""

    slower: float
    flag: ClassVar[str] = "max-model-len"

    def step(self, setting: Setting, batch: int) -> float:
        return 1.0 + self.slower * setting.length / setting.longest


KINDS: dict[str, Callable[..., Effect]] = {
    "cliff": Cliff,
    "backend": Backend,
    "bookkeeping": Bookkeeping,
    "stall": Stall,
    "starved": Starved,
    "fragments": Fragments,
    "streams": Streams,
    "overlap": Overlap,
    "tables": Tables,
}
"""Effects by name."""
