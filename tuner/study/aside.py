"""What trials beside each other tell the observer: one at a time, and named."""

from __future__ import annotations

import threading
from typing import Any, cast

from tuner.measure import Judgement
from tuner.study.records import Observer


def locked(observer: Observer) -> Observer:
    """The same observer for several threads: it hears one event at a time."""
    return cast(Observer, _Locked(observer, threading.RLock()))


def aside(observer: Observer, number: int | None) -> Observer:
    """The observer of one trial among several: what it is doing is named, single requests are not told."""
    return cast(Observer, _Aside(observer, "beside others" if number is None else f"trial {number + 1}"))


class _Locked:
    def __init__(self, observer: Observer, lock: threading.RLock) -> None:
        self._observer, self._lock = observer, lock

    def __getattr__(self, name: str) -> Any:
        event = getattr(self._observer, name)

        def tell(*said: Any, **more: Any) -> Any:
            with self._lock:
                return event(*said, **more)

        return tell


class _Aside:
    def __init__(self, observer: Observer, name: str) -> None:
        self._observer, self._name = observer, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def phase(self, text: str) -> None:
        self._observer.phase(f"{self._name}: {text}")

    def replay_progress(self, done: int, planned: int) -> None:
        """Requests of several at once would only flicker: that it replays is a phase."""
        self._observer.phase(f"{self._name}: replaying")

    def replay_latency(self, p99_s: float) -> None:
        """Not told, likewise."""

    def replayed(self, rps: float, judgement: Judgement) -> None:
        self._observer.replayed(rps, judgement)
