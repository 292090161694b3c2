"""What a known failure is: how its line is found, and how it is told in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tuner.engines.base import Bound, FailureKind
from tuner.engines.vllm.logs.figures import Figures
from tuner.engines.vllm.logs.probe import Probe, probe

EXACT, PRECISE, GENERAL, VAGUE, CONSEQUENCE = range(5)
"""Ranks: a precise cause is told before a general one, and both before what merely followed."""


@dataclass(frozen=True, slots=True)
class Found:
    """A failure's line in its surroundings: the match, the message before it, the phase, all figures."""

    match: re.Match[str]
    before: str
    phase: str
    served: bool
    figures: Figures

    def group(self, name: str) -> str:
        """A named part of the match, empty where it is absent."""
        return (self.match.groupdict().get(name) or "").strip()

    def number(self, name: str) -> float | None:
        """A named part as a number; None where it is absent or no number."""
        try:
            return float(self.group(name).replace(",", ""))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Explained:
    """A failure in plain words, how to mend it, and what it teaches about flags."""

    cause: str
    mend: str = ""
    bounds: tuple[Bound, ...] = ()


Explain = Callable[[Found], Explained]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A known failure.

    `death` marks the end of a server that was up; `always` a failure of the process itself, whatever was
    before; `quiet` one that vLLM or torch may write as a warning, which then ranks with the consequences;
    `wrapped` one whose message may run over several lines.
    """

    kind: FailureKind
    line: Probe
    explain: Explain
    rank: int = PRECISE
    death: bool = False
    always: bool = False
    quiet: bool = False
    wrapped: bool = False


def says(cause: str, mend: str = "") -> Explain:
    """An explanation by a template over the match's named groups."""

    def explain(found: Found) -> Explained:
        parts = {name: (value or "").strip() for name, value in found.match.groupdict().items()}
        return Explained(_tidy(cause.format_map(parts)), mend.format_map(parts))

    return explain


def quoted(mend: str = "", prefix: str = "") -> Explain:
    """An explanation that hands on the log's own words: the named group `text`, or the whole match."""

    def explain(found: Found) -> Explained:
        return Explained(_tidy(prefix + (found.group("text") or found.match[0])), mend)

    return explain


def pattern(
    kind: FailureKind,
    needles: str | tuple[str, ...],
    regex: str,
    explain: Explain,
    *,
    rank: int = PRECISE,
    death: bool = False,
    always: bool = False,
    quiet: bool = False,
    wrapped: bool = False,
) -> Pattern:
    """A Pattern from plain text."""
    return Pattern(kind, probe(needles, regex), explain, rank, death, always, quiet, wrapped)


def _tidy(text: str, limit: int = 400) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
