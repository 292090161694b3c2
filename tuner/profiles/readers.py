"""Plain values read field by field; whatever is wrong is named with its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import BadRequest
from tuner.space.config import LaunchConfig
from tuner.space.flags import parse_version
from tuner.spec import FlagValue

MAX_DEPTH = 30
_SHOWN = 60
_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a profile: keys and list positions below `root`."""

    root: str
    path: tuple[str | int, ...] = ()

    def at(self, step: str | int) -> Where:
        """The place one step further down."""
        return Where(self.root, (*self.path, step))

    def __str__(self) -> str:
        text = self.root
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f": {step}"
        return text


class BadField(BadRequest):
    """A field is missing, unknown or of another kind; `where` is its place."""

    def __init__(self, where: Where, what: str, mend: str) -> None:
        super().__init__(f"{where}: {what}", mend)
        self.where = where


Reader = Callable[[Any, Where], Any]


def wrong(where: Where, needed: str, value: Any) -> BadField:
    """The error of a value of another kind."""
    try:
        shown = repr(value)
    except ValueError:  # a whole number of thousands of digits
        shown = f"such {type(value).__name__}"
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    return BadField(where, f"{needed} is needed, not {shown}", "mend the file")


def record(table: Any, readers: Mapping[str, Reader], where: Where) -> dict[str, Any]:
    """A mapping of exactly the fields of `readers`."""
    table = mapping(table, where)
    for key in table:
        if key not in readers:
            raise BadField(where.at(str(key)), "not a field of it", "remove it")
    for key in readers:
        if key not in table:
            raise BadField(where, f"{key} is missing", "export the study's profile again")
    return {key: reader(table[key], where.at(key)) for key, reader in readers.items()}


def record_of(kind: Callable[..., Any], readers: Mapping[str, Reader]) -> Reader:
    """A dataclass from a mapping of its fields."""
    return lambda value, where: kind(**record(value, readers, where))


def mapping(value: Any, where: Where) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(where, "a mapping", value)
    return value


def integer(value: Any, where: Where) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(where, "a whole number", value)
    return value


def count(value: Any, where: Where) -> int:
    if integer(value, where) < 0:
        raise wrong(where, "a whole number of at least 0", value)
    return int(value)


def number(value: Any, where: Where) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise wrong(where, "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise wrong(where, "a number", value) from None


def amount(value: Any, where: Where) -> float:
    if not 0.0 <= number(value, where) < math.inf:
        raise wrong(where, "a finite number of at least 0", value)
    return float(value)


def text(value: Any, where: Where) -> str:
    if not isinstance(value, str):
        raise wrong(where, "a text", value)
    return value


def version(value: Any, where: Where) -> str:
    try:
        parse_version(text(value, where))
    except BadField:
        raise
    except BadRequest:
        raise wrong(where, "a vLLM version", value) from None
    return str(value)


def truth(value: Any, where: Where) -> bool:
    if not isinstance(value, bool):
        raise wrong(where, "true or false", value)
    return value


def one_of(*allowed: str) -> Reader:
    def read(value: Any, where: Where) -> str:
        if value not in allowed:
            raise wrong(where, f"one of {', '.join(allowed)}", value)
        return str(value)

    return read


def or_none(reader: Reader) -> Reader:
    return lambda value, where: None if value is None else reader(value, where)


def tuple_of(reader: Reader, length: int | None = None) -> Reader:
    def read(value: Any, where: Where) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
            raise wrong(where, f"a list{f' of {length}' if length else ''}", value)
        return tuple(reader(item, where.at(i)) for i, item in enumerate(value))

    return read


def plain(value: Any, where: Where) -> Any:
    """Whatever JSON can hold, as lists and dictionaries."""
    if len(where.path) > MAX_DEPTH:
        raise BadField(where, "nested too deeply", "mend the file")
    if isinstance(value, Mapping):
        return {text(key, where): plain(item, where.at(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, where.at(i)) for i, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise wrong(where, "a plain value", value)


def plain_mapping(value: Any, where: Where) -> dict[str, Any]:
    return {text(key, where): plain(item, where.at(key)) for key, item in mapping(value, where).items()}


def flag_value(value: Any, where: Where) -> FlagValue:
    """A flag's value; a mapping becomes JSON text, which is how a command line holds it."""
    if isinstance(value, Mapping):
        return json.dumps(plain(value, where), sort_keys=True, separators=(",", ":"))
    if isinstance(value, list | tuple):
        return tuple(flag_value(item, where.at(i)) for i, item in enumerate(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise wrong(where, "a flag's value", value)


def flag_values(value: Any, where: Where) -> dict[str, FlagValue]:
    return {text(k, where): flag_value(v, where.at(k)) for k, v in mapping(value, where).items()}


def flags(value: Any, where: Where) -> LaunchConfig:
    for name in mapping(value, where):
        if not _FLAG.fullmatch(text(name, where)):
            raise BadField(
                where.at(name), "not a flag's name", "write it as vLLM does, without dashes in front"
            )
    return LaunchConfig.of(flag_values(value, where))


def model(value: Any, where: Where) -> str:
    if not text(value, where).strip() or value.startswith("-"):
        raise wrong(where, "a model's name or folder", value)
    return str(value)


def limits(value: Any, where: Where) -> dict[str, float]:
    return {text(k, where): amount(v, where.at(k)) for k, v in mapping(value, where).items()}
