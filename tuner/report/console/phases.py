"""What the current launch is doing, how long it has been at it, and how long earlier launches took for it."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

from tuner.report.words import seconds, span

_NAMED = re.compile(r"^(trial \d+|beside others): ")
_SHORTEST_S = 1.0
"""Phases below are not worth an expectation."""


class PhaseClock:
    """Times phases. Phases of trials beside each other are named "trial 3: loading" and timed apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._earlier: dict[str, list[float]] = defaultdict(list)
        self._now: dict[str, tuple[str, float]] = {}

    def phase(self, text: str) -> None:
        """A phase begins, or goes on with news after a colon."""
        who, what = _split(text)
        name = what.partition(":")[0]
        if self._now.get(who, ("", 0.0))[0] != name:
            self.end(who)
            self._now[who] = (name, self._clock())

    def end(self, who: str = "") -> None:
        """The launch is over: it serves, or has failed."""
        name, since_s = self._now.pop(who, ("", 0.0))
        if name:
            self._earlier[name].append(self._clock() - since_s)

    def said(self, text: str) -> str:
        """A phase with its time and what to expect: "loading the weights, 12 s of about 40 s"."""
        who, what = _split(text)
        name, since_s = self._now.get(who, ("", 0.0))
        before = self._earlier.get(name, [])
        expected_s = median(before) if before else 0.0
        took_s = self._clock() - since_s if name else 0.0
        if max(expected_s, took_s) < _SHORTEST_S:
            return text
        about = f" of about {span(expected_s)}" if expected_s >= _SHORTEST_S else ""
        return f"{text}, {span(took_s)}{about}"


def _split(text: str) -> tuple[str, str]:
    named = _NAMED.match(text)
    return (named[1], text[named.end() :]) if named else ("", text)


class ReplayView:
    """The replay that runs, in words: how far it is and its P99 so far against the SLO."""

    def __init__(self) -> None:
        self.limit_s: float | None = None
        self._done = self._planned = 0
        self._p99_s: float | None = None

    def progress(self, done: int, planned: int) -> None:
        """So many requests have ended; a new replay forgets the last one's P99."""
        if done < self._done:
            self._p99_s = None
        self._done, self._planned = done, planned

    def latency(self, p99_s: float) -> None:
        """The P99 of E2E so far."""
        self._p99_s = p99_s

    def said(self) -> str:
        """ "412 of 1,000 requests, P99 so far 12.3 s of 30 s"."""
        text = f"{self._done:,} of {self._planned:,} requests"
        if self._p99_s is None:
            return text
        limit = f" of {self.limit_s:g} s" if self.limit_s else ""
        return f"{text}, P99 so far {seconds(self._p99_s)}{limit}"
