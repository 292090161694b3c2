"""A sign of life in a storage that hosts share: a counter that moves while a process lives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

EVERY_S = 2.0
LOST_S = 20.0
"""Who gives no sign for so long is gone."""


class Heart:
    """A thread that writes a study attribute every few seconds: `{**said(), "beat": 1, 2, 3, …}`."""

    def __init__(
        self, storage: BaseStorage, study_id: int, key: str, said: Callable[[], dict[str, Any]]
    ) -> None:
        self._storage, self._study_id, self._key, self._said = storage, study_id, key, said
        self._beat = 0
        self._ended = threading.Event()
        self._now = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def __enter__(self) -> Self:
        self.beat()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=EVERY_S + 1.0)

    def beat(self) -> None:
        """Give a sign at once."""
        with self._lock:
            self._beat += 1
            self._storage.set_study_user_attr(self._study_id, self._key, {**self._said(), "beat": self._beat})

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            with contextlib.suppress(Exception):  # a storage that is away gets its sign when it is back
                self.beat()


@dataclass(slots=True)
class Pulse:
    """Watches one counter. Time in which nobody looked, a storage that was away, does not count."""

    seen: Any = None
    moved: bool = False
    """Whether it has moved while it was watched; a sign that was there before says nothing."""
    still_s: float = 0.0
    _looked_s: float | None = None

    def look(self, value: Any) -> None:
        """Note what the counter says now."""
        now = time.monotonic()
        if value != self.seen:
            self.moved = self._looked_s is not None
            self.still_s, self.seen = 0.0, value
        elif self._looked_s is not None:
            self.still_s += min(now - self._looked_s, EVERY_S)
        self._looked_s = now

    @property
    def lost(self) -> bool:
        """Whether it has stood still for too long."""
        return self.still_s > LOST_S
