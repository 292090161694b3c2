"""CSV traces in numpy columns: pieces of the file parsed at once, and row by row where that fails."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.traces.files import TraceFile
from tuner.traces.formats import digits
from tuner.traces.formats.base import MAX_SECONDS, MAX_TOKENS, YEARS
from tuner.traces.trace import I64

_WHOLE = re.compile(r"[0-9]+(\.0*)?", re.ASCII)
_FRACTION = re.compile(r"(?<=:[0-9]{2})\.([0-9]+)", re.ASCII)
_NS = 1_000_000_000


class Kind(Enum):
    """What a column holds."""

    TOKENS = "a whole number of tokens"
    SECONDS = "a number of seconds"
    DATETIME = "a time like 2024-05-10 00:00:00.009930+00:00"
    LABEL = "a label"


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name in the file (any case)."""

    name: str
    kind: Kind


def column_names(line: str) -> tuple[str, ...]:
    """The names in a header line, in lower case."""
    return tuple(name.strip().lower() for name in _split(line.lstrip("\ufeff")))


def read_table(file: TraceFile, columns: Sequence[Column]) -> dict[str, NDArray[Any]]:
    """The columns by lower-case name: tokens as int32, times as int64 nanoseconds, labels as int64 numbers
    (-1 for an empty one).

    Raises:
        BadRequest: a row lacks a field, or it is not of the column's kind.
    """
    reader = _Table(file, columns)
    for line, piece in file.chunks():
        reader.add(piece, line)
    return reader.result()


class _Table:
    def __init__(self, file: TraceFile, columns: Sequence[Column]) -> None:
        self._file = file
        self._columns = columns
        self._places: list[int] = []
        self._width = 0
        self._parts: list[list[NDArray[Any]]] = [[] for _ in columns]
        self._labels: dict[str, int] = {}

    def add(self, piece: bytes, line: int) -> None:
        """Parse whole lines, the first of which has number `line`."""
        if not self._width:
            piece, line = self._header(piece, line)
        if not piece:
            return
        values = self._fast(piece)
        if values is None:
            values = self._slow(piece, line)
        for part, column in zip(self._parts, values, strict=True):
            part.append(column)

    def result(self) -> dict[str, NDArray[Any]]:
        """Every column in full."""
        found: dict[str, NDArray[Any]] = {}
        for column, parts in zip(self._columns, self._parts, strict=True):
            dtype = np.int32 if column.kind is Kind.TOKENS else np.int64
            found[column.name.lower()] = np.concatenate(parts) if parts else np.empty(0, dtype)
            parts.clear()
        return found

    def _header(self, piece: bytes, line: int) -> tuple[bytes, int]:
        while piece:
            head, _, piece = piece.partition(b"\n")
            line += 1
            if head.strip():
                names = column_names(head.decode("utf-8", "replace").strip())
                self._width = len(names)
                self._places = [names.index(column.name.lower()) for column in self._columns]
                break
        return piece, line

    def _fast(self, piece: bytes) -> list[NDArray[Any]] | None:
        """Columns of a piece whose every row is plain; None where one is not."""
        if b'"' in piece:
            return None
        buffer = np.frombuffer(piece, np.uint8)
        ends = np.flatnonzero(buffer == 10)
        starts = np.empty_like(ends)
        starts[0] = 0
        starts[1:] = ends[:-1] + 1
        ends = ends - ((ends > starts) & (buffer[ends - 1] == 13))
        filled = ends > starts
        starts, ends = starts[filled], ends[filled]
        commas = np.flatnonzero(buffer == 44)
        if len(commas) != len(starts) * (self._width - 1):
            return None
        bounds = np.empty((len(starts), self._width + 1), np.int64)
        bounds[:, 0] = starts - 1
        bounds[:, 1:-1] = commas.reshape(len(starts), self._width - 1)
        bounds[:, -1] = ends
        if self._width > 1 and ((bounds[:, 1] < starts) | (bounds[:, -2] >= ends)).any():
            return None
        values: list[NDArray[Any]] = []
        for column, place in zip(self._columns, self._places, strict=True):
            value = self._parse(column.kind, piece, buffer, bounds[:, place] + 1, bounds[:, place + 1])
            if value is None:
                return None
            values.append(value)
        return values

    def _parse(
        self, kind: Kind, piece: bytes, buffer: digits.Bytes, left: I64, right: I64
    ) -> NDArray[Any] | None:
        if kind is Kind.LABEL:
            spans = zip(left.tolist(), right.tolist(), strict=True)
            labels = [self._label(piece[a:b].decode("utf-8", "replace").strip()) for a, b in spans]
            return np.array(labels, np.int64)
        value, bad = _PARSERS[kind](buffer, left, right)
        if kind is Kind.TOKENS:
            bad |= value > MAX_TOKENS
            value_32: NDArray[Any] = value.astype(np.int32)
            return None if bad.any() else value_32
        return None if bad.any() else value

    def _label(self, text: str) -> int:
        return self._labels.setdefault(text, len(self._labels)) if text else -1

    def _slow(self, piece: bytes, line: int) -> list[NDArray[Any]]:
        values: list[list[int]] = [[] for _ in self._columns]
        for number, raw in enumerate(piece.split(b"\n"), start=line):
            text = raw.decode("utf-8", "replace").strip()
            if not text:
                continue
            fields = _split(text)
            for column, place, part in zip(self._columns, self._places, values, strict=True):
                part.append(self._value(column, fields[place].strip() if place < len(fields) else "", number))
        kinds = [np.int32 if column.kind is Kind.TOKENS else np.int64 for column in self._columns]
        return [np.array(part, kind) for part, kind in zip(values, kinds, strict=True)]

    def _value(self, column: Column, text: str, line: int) -> int:
        if column.kind is Kind.LABEL:
            return self._label(text)
        mend = "mend the line, or leave it out"
        if not text:
            raise self._file.error(line, f"{column.name} is missing", mend)
        value = _SLOW[column.kind](text)
        if value is None:
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise self._file.error(line, f"{column.name} is {shown!r}, not {column.kind.value}", mend)
        return value


def _split(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return line.split(",")


def _tokens(text: str) -> int | None:
    value = int(text.partition(".")[0]) if len(text) < 24 and _WHOLE.fullmatch(text) else -1
    return value if 0 <= value <= MAX_TOKENS else None


def _seconds(text: str) -> int | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    if not value.is_finite() or (value and value.adjusted() > 11) or abs(value) > MAX_SECONDS:
        return None
    return _whole(value * _NS) if value and value.adjusted() > -30 else 0


def _whole(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))


def _datetime(text: str) -> int | None:
    fraction = _FRACTION.search(text)
    plain = text[: fraction.start()] + text[fraction.end() :] if fraction else text
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        return None
    if moment.year not in YEARS:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    nanoseconds = _whole(Decimal("0." + fraction[1]) * _NS) if fraction else 0
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _SECOND * _NS + nanoseconds


_SECOND = datetime(1970, 1, 1, 0, 0, 1) - datetime(1970, 1, 1)
_Parser = Callable[[digits.Bytes, I64, I64], tuple[I64, digits.Mask]]
_PARSERS: Mapping[Kind, _Parser] = {
    Kind.TOKENS: digits.whole_numbers,
    Kind.SECONDS: digits.seconds_ns,
    Kind.DATETIME: digits.datetimes_ns,
}
_SLOW: Mapping[Kind, Callable[[str], int | None]] = {
    Kind.TOKENS: _tokens,
    Kind.SECONDS: _seconds,
    Kind.DATETIME: _datetime,
}
