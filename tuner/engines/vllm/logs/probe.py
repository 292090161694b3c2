"""A regular expression that is only tried where a literal is in the message: most messages hold none."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Probe:
    """`needles` are literals of which one must be there before the regex is searched for."""

    needles: tuple[str, ...]
    regex: re.Pattern[str]

    def search(self, body: str) -> re.Match[str] | None:
        """The match in a message."""
        for needle in self.needles:
            if needle in body:
                return self.regex.search(body)
        return None


def probe(needles: str | tuple[str, ...], regex: str) -> Probe:
    """A Probe from plain text."""
    return Probe((needles,) if isinstance(needles, str) else needles, re.compile(regex))
