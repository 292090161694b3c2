"""One vLLM flag: what its value may be, and the plain JSON form in which tables of flags are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner.spec import FlagValue


class FlagKind(StrEnum):
    """What a flag takes on the command line."""

    BOOL = "bool"
    """No value: --flag, and --no-flag where `negatable`."""
    INT = "int"
    FLOAT = "float"
    STR = "str"
    JSON = "json"
    """One word of JSON; single keys can be given as flag.key."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag by vLLM's own name without the dashes.

    `listed` flags take several words, each of the flag's kind, `repeated` ones one word each time. `bare`
    flags may stand without their value. `folded` choices are read without regard to case and "-" or "_".
    `readable` integers may be written 4k or 1M, `auto` is a word taken beside numbers. `low` and `high` bound
    numbers, exclusive where `open_low` or `open_high`. `default` is None where vLLM works it out at start-up.
    """

    name: str
    kind: FlagKind
    default: FlagValue = None
    choices: tuple[FlagValue, ...] = ()
    nullable: bool = False
    listed: bool = False
    repeated: bool = False
    folded: bool = False
    negatable: bool = True
    bare: bool = False
    readable: bool = False
    auto: bool = False
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    aliases: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults, without the name."""
        short: dict[str, Any] = {"kind": self.kind.value}
        for field in _PLAIN:
            value = getattr(self, field)
            if value != _BLANK[field]:
                short[field] = value
        for field in ("choices", "aliases"):
            if getattr(self, field):
                short[field] = list(getattr(self, field))
        return short

    @classmethod
    def from_json(cls, name: str, short: Mapping[str, Any]) -> Flag:
        """The flag again; raises KeyError, TypeError or ValueError where `short` is not a flag's JSON."""
        fields = {field: short[field] for field in _PLAIN if field in short}
        default = fields.get("default")
        fields["default"] = tuple(default) if isinstance(default, list) else default
        return cls(
            name,
            FlagKind(short["kind"]),
            choices=tuple(short.get("choices", ())),
            aliases=tuple(short.get("aliases", ())),
            **fields,
        )

    def problem(self, value: object) -> str | None:
        """Why vLLM would not take this value, in a few words; None where it would."""
        if value is None:
            return None
        if self.kind is FlagKind.BOOL:
            if not isinstance(value, bool):
                return "takes true or false"
            return None if value or self.negatable or not self.default else "cannot be turned off"
        if self.bare and isinstance(value, bool):
            return None
        if self.listed or self.repeated:
            values = value if isinstance(value, list | tuple) else (value,)
            if not values:
                return "takes at least one value"
            return next((found for each in values if (found := self._one(each))), None)
        if isinstance(value, list | tuple) and self.kind is not FlagKind.JSON:
            return f"takes one {_WORDS[self.kind]}, not a list"
        return self._one(value)

    def _one(self, value: object) -> str | None:
        if self.auto and value in ("auto", -1):
            return None
        if self.kind is FlagKind.JSON:
            return _json_problem(value)
        if self.kind is FlagKind.STR:
            if isinstance(value, bool) or not isinstance(value, str | int):
                return "takes a word"
            value = value if self.choices and value in self.choices else str(value)
            if self.folded:
                value = str(value).lower().replace("-", "_")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            if not (self.readable and isinstance(value, str) and _readable(value)):
                return f"takes {_WORDS[self.kind]}"
            return None
        elif not math.isfinite(value):
            return "takes a finite number"
        elif self.kind is FlagKind.INT and value != int(value):
            return "takes a whole number"
        if self.choices and value not in self.choices:
            return "takes one of " + ", ".join(str(choice) for choice in self.choices)
        if isinstance(value, int | float):
            return self._outside(value)
        return None

    def _outside(self, value: float) -> str | None:
        if self.low is not None and (value < self.low or (self.open_low and value == self.low)):
            return f"must be {'above' if self.open_low else 'at least'} {self.low:g}"
        if self.high is not None and (value > self.high or (self.open_high and value == self.high)):
            return f"must be {'below' if self.open_high else 'at most'} {self.high:g}"
        return None


_PLAIN = (
    "default",
    "nullable",
    "listed",
    "repeated",
    "folded",
    "negatable",
    "bare",
    "readable",
    "auto",
    "low",
    "high",
    "open_low",
    "open_high",
)
_BLANK = {field: getattr(Flag("", FlagKind.STR), field) for field in _PLAIN}
_WORDS = {
    FlagKind.INT: "a whole number",
    FlagKind.FLOAT: "a number",
    FlagKind.STR: "a word",
    FlagKind.JSON: "JSON",
    FlagKind.BOOL: "true or false",
}


def _json_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return None if isinstance(value, Mapping | list | tuple) else "takes JSON, or a mapping"
    if not value.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(value)
    except ValueError as error:
        return f"takes JSON: {error}"
    return None


def _readable(text: str) -> bool:
    digits = text[:-1] if text[-1:] in tuple("kKmMgGtT") else text
    return digits.replace(".", "", 1).isdigit()
