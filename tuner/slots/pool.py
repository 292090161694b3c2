"""The slots of one machine: which cards, cores and ports each trial gets, and the processes that run them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.engines.base import Engine
from tuner.hardware import Platform
from tuner.slots.cards import Card, usable_cores
from tuner.slots.hosted import HostedEngine, Link, ProcessLink

PORTS = (18_000, 32_000)
"""Below the kernel's range for outgoing connections; each card has a part of its own."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one card brings to its slot: its name, cores of its own (empty: all), a range of ports."""

    word: str
    cores: tuple[int, ...]
    ports: tuple[int, int]


def shares_of(cards: Sequence[Card], cores: Sequence[int] | None = None) -> list[Share]:
    """Cores and ports shared out among the cards; cards near the same cores share those.

    Fewer cores than cards: none are pinned.
    """
    here = list(cores) if cores is not None else usable_cores()
    width = (PORTS[1] - PORTS[0]) // max(1, len(cards))
    near = [tuple(core for core in card.cores if core in here) or tuple(here) for card in cards]
    pinned = len(here) >= len(cards) and all(near.count(own) <= len(own) for own in near)
    shares = []
    for index, (card, own) in enumerate(zip(cards, near, strict=True)):
        among = [i for i, other in enumerate(near) if other == own]
        place = among.index(index)
        low, high = len(own) * place // len(among), len(own) * (place + 1) // len(among)
        first = PORTS[0] + index * width
        shares.append(Share(card.word, own[low:high] if pinned else (), (first, first + width)))
    return shares


def shares_of_count(count: int) -> list[Share]:
    """So many cards of which nothing is known here, on other machines."""
    return shares_of([Card("") for _ in range(count)], cores=[])


def environment_of(group: Sequence[Share], platform: Platform) -> dict[str, str]:
    """What a slot of these cards has in its environment."""
    added = {"KIMI_TUNE_PORTS": f"{group[0].ports[0]}-{group[-1].ports[1]}"}
    words = [share.word for share in group]
    if all(words):
        added["CUDA_VISIBLE_DEVICES"] = ",".join(words)
        if all(word.isdigit() for word in words):
            added["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML counts like this
    cores = [core for share in group for core in share.cores]
    if platform is Platform.CPU and cores:
        added["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    return added


LinkMaker = Callable[[Sequence[Share]], Link]


@dataclass(slots=True)
class Pool:
    """Hands out engines on so many cards as a trial needs; a slot's process is kept for the next trial.

    Groups are aligned (cards 0-1, 2-3, … for two), so that neighbours stay together.
    """

    shares: Sequence[Share]
    like: Engine
    make_link: LinkMaker
    keep: bool = True
    """Whether a slot outlives its trial; where GPUs are shared with others it does not."""
    _taken: set[int] = field(default_factory=set)
    _engines: dict[tuple[int, ...], HostedEngine] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of_processes(
        cls, shares: Sequence[Share], like: Engine, factory: Callable[[], Engine], platform: Platform
    ) -> Pool:
        """Slots that are child processes of this one."""

        def link(group: Sequence[Share]) -> Link:
            cores = [core for share in group for core in share.cores]
            return ProcessLink(factory, environment_of(group, platform), cores)

        return cls(shares, like, link)

    @property
    def cards(self) -> int:
        """How many cards there are in all."""
        return len(self.shares)

    def take(self, cards: int) -> HostedEngine | None:
        """An engine on so many neighbouring cards; None where they are not free."""
        with self._lock:
            for first in range(0, len(self.shares) - cards + 1, cards):
                group = tuple(range(first, first + cards))
                if self._taken.isdisjoint(group):
                    self._taken.update(group)
                    return self._engine(group)
        return None

    def free(self, cards: int) -> bool:
        """Whether `take` would find them."""
        with self._lock:
            groups = range(0, len(self.shares) - cards + 1, cards)
            return any(self._taken.isdisjoint(range(first, first + cards)) for first in groups)

    def give(self, engine: Engine) -> None:
        """Cards are free again; a slot whose process is gone is started anew the next time."""
        with self._lock:
            for group, known in list(self._engines.items()):
                if known is engine:
                    self._taken.difference_update(group)
                    if not self.keep:
                        known.close()
                    if not known.link.lives:
                        del self._engines[group]

    def close(self) -> None:
        """End every slot; servers that run are stopped."""
        with self._lock:
            engines, self._engines = list(self._engines.values()), {}
            self._taken.clear()
        threads = [threading.Thread(target=engine.close) for engine in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _engine(self, group: tuple[int, ...]) -> HostedEngine:
        known = self._engines.get(group)
        if known is None or not known.link.lives:
            # another slot on the same cards gives up what it holds beyond its servers
            for other in [g for g in self._engines if g != group and not set(g).isdisjoint(group)]:
                self._engines.pop(other).close()
            known = HostedEngine(self.make_link([self.shares[i] for i in group]), self.like)
            self._engines[group] = known
        return known


def cards_of(config: Mapping[str, object]) -> int:
    """How many cards a configuration takes."""
    wanted = 1
    for flag in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        value = config.get(flag)
        wanted *= value if isinstance(value, int) and not isinstance(value, bool) else 1
    return wanted
