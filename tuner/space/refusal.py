"""What a rule answers, and what a study has learned about a flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spec import FlagValue


@dataclass(frozen=True, slots=True)
class FlagBound:
    """Values of `flag` outside [min, max] cannot work; `reason` in plain words.

    `kv_tokens`, where given, is the KV cache that the bound was learned at: it holds for configurations with
    no more than that.
    """

    flag: str
    min: float | None = None
    max: float | None = None
    reason: str = ""
    kv_tokens: int | None = None

    def allows(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a configuration is not worth a launch: the rule's name, plain words, and the flag it is about.

    `bound` is there where it holds for other configurations too, whatever their other flags.
    """

    rule: str
    reason: str
    bound: FlagBound | None = None
    flag: str | None = None


class Learned:
    """Bounds that logs taught in this study, the newest last."""

    def __init__(self) -> None:
        self.bounds: tuple[FlagBound, ...] = ()

    def add(self, bound: FlagBound) -> None:
        if bound not in self.bounds and (bound.min is not None or bound.max is not None):
            self.bounds = (*self.bounds, bound)

    def broken_by(self, values: Mapping[str, FlagValue], kv_tokens: int) -> FlagBound | None:
        """The first bound that these effective values break."""
        for bound in self.bounds:
            value = values.get(bound.flag)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if not bound.allows(value) and (bound.kv_tokens is None or kv_tokens <= bound.kv_tokens):
                return bound
        return None
