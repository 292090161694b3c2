"""Reading JSONL traces: rows into columns, with errors that name line and field."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from tuner.errors import BadRequest
from tuner.traces.files import TraceFile
from tuner.traces.formats.base import FAILED, MAX_SECONDS, MAX_TOKENS, Columns
from tuner.traces.trace import I64

Row = Mapping[str, Any]
_IDS_BELOW = 1 << 62
_STRING_IDS_FROM = 1 << 61
_MISSING = object()


def rows(file: TraceFile) -> Iterator[tuple[int, Row]]:
    """Every row with its line number.

    Raises:
        BadRequest: a line is not a JSON object.
    """
    for number, line in file.lines():
        yield number, row_of(file, number, line)


def row_of(file: TraceFile, number: int, line: bytes) -> Row:
    """The row on one line.

    Raises:
        BadRequest: not a JSON object.
    """
    try:
        row: Row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise file.error(number, f"is not JSON ({error})", "write one JSON object a line") from None
    if type(row) is not dict:
        raise file.error(number, "is not a JSON object", "write one JSON object a line")
    return row


def failed(row: Row) -> bool:
    """Whether a row says that its request failed: an `error`, or an HTTP status from 400."""
    status = row.get("status_code", row.get("status"))
    return bool(row.get("error")) or (type(status) is int and status >= 400)


class Fields:
    """Typed access to the fields of one file's rows."""

    def __init__(self, file: TraceFile) -> None:
        self.file = file

    def wrong(self, line: int, name: str, problem: str) -> BadRequest:
        """The error about one field of one line."""
        return self.file.error(line, f"{name} {problem}", "mend the line, or leave it out")

    def tokens(self, row: Row, name: str, line: int) -> int:
        """A number of tokens, 0 or more."""
        value = row.get(name, _MISSING)
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            return value
        if value is _MISSING or value is None:
            raise self.wrong(line, name, "is missing")
        if type(value) is float and value.is_integer() and 0 <= value <= MAX_TOKENS:
            return int(value)
        raise self.wrong(line, name, f"is {_shown(value)}, not a whole number of tokens")

    def time_ns(self, row: Row, name: str, line: int, per_second: int) -> int:
        """A time in whole nanoseconds from a number (or a number in a string) of 1/`per_second` seconds."""
        value = row.get(name, _MISSING)
        if value is _MISSING or value is None:
            raise self.wrong(line, name, "is missing")
        if type(value) is str:
            try:
                value = float(value) if not value.isdecimal() or len(value) > 18 else int(value)
            except ValueError:
                raise self.wrong(line, name, f"is {_shown(value)}, not a time") from None
        return self.scaled_ns(value, name, line, per_second)

    def scaled_ns(self, value: object, name: str, line: int, per_second: int) -> int:
        """A number of 1/`per_second` seconds in whole nanoseconds."""
        if type(value) is not int and type(value) is not float:
            raise self.wrong(line, name, f"is {_shown(value)}, not a time")
        if not math.isfinite(value) or abs(value) > MAX_SECONDS * per_second:
            raise self.wrong(line, name, f"is {_shown(value)}, out of the range of times")
        scale = 1_000_000_000 // per_second
        if type(value) is int:
            return value * scale
        # the shortest decimal that gives this float is what the file says; value * scale would add noise
        return round(Decimal(repr(value)) * scale)


class RowSink:
    """Collects rows; ids and sessions may be numbers or strings."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.line = array("q")
        self.time_ns = array("q")
        self.input_tokens = array("q")
        self.output_tokens = array("q")
        self.block_counts = array("q")
        self.block_ids = array("q")
        self.bodies: list[Any] = []
        self.arrival_s: dict[int, float] = {}
        self.failed = 0
        self._session = array("q")
        self._sessions: dict[object, int] = {}
        self._given_sessions = 0
        self._string_ids: dict[str, int] = {}
        self._has_body = False

    def __len__(self) -> int:
        return len(self.time_ns)

    def add(self, line: int, time_ns: int, input_tokens: int, output_tokens: int) -> None:
        """One request; `blocks`, `session` and `body` complete it."""
        self.line.append(line)
        self.time_ns.append(time_ns)
        self.input_tokens.append(input_tokens)
        self.output_tokens.append(output_tokens)

    def blocks(self, ids: object, line: int, name: str = "hash_ids") -> None:
        """The prefix blocks of the request just added: a list of whole numbers, or of strings."""
        if type(ids) is not list:
            problem = "is missing" if ids is None else f"is {_shown(ids)}, not a list of block ids"
            raise self._fields.wrong(line, name, problem)
        if ids and type(ids[0]) is str:
            if not all(type(id_) is str for id_ in ids):
                raise self._fields.wrong(line, name, "mixes ids of several kinds")
            known = self._string_ids
            ids = [known.setdefault(id_, _STRING_IDS_FROM + len(known)) for id_ in ids]
        try:
            self.block_ids.extend(ids)
        except (TypeError, OverflowError):
            before = len(self.block_ids)
            del self.block_ids[int(sum(self.block_counts)) : before]
            self.block_ids.extend(self._signed(ids, line, name))
        self.block_counts.append(len(ids))

    def _signed(self, ids: list[Any], line: int, name: str) -> list[int]:
        """Unsigned 64-bit ids (hashes) as signed ones."""
        if not all(type(id_) is int and -(1 << 63) <= id_ < 1 << 64 for id_ in ids):
            raise self._fields.wrong(line, name, "holds something that is not a 64-bit id")
        return [id_ - (1 << 64) if id_ >= 1 << 63 else id_ for id_ in ids]

    def session(self, label: object, line: int, name: str = "session_id") -> None:
        """The session of the request just added (None: a session of its own)."""
        if label is None or label == "":
            self._session.append(-1)
            return
        if type(label) is not str and type(label) is not int:
            raise self._fields.wrong(line, name, f"is {_shown(label)}, not a string or a whole number")
        self._given_sessions += 1
        self._session.append(self._sessions.setdefault(label, len(self._sessions)))

    def body(self, body: Any) -> None:
        """The recorded prompt (a string or token ids) or messages of the request just added."""
        self._has_body |= body is not None
        self.bodies.append(body)

    @property
    def sessions(self) -> int:
        """How many different sessions were named."""
        return len(self._sessions)

    @property
    def unnamed(self) -> int:
        """How many requests named no session."""
        return len(self) - self._given_sessions

    def columns(self) -> Columns:
        """What was collected."""
        session, dense = self._session_column()
        ids = _i64(self.block_ids)
        if len(ids) and (ids.min() < 0 or ids.max() >= _IDS_BELOW):
            ids = np.unique(ids, return_inverse=True)[1]
        return Columns(
            time_ns=_i64(self.time_ns),
            input_tokens=_i64(self.input_tokens),
            output_tokens=_i64(self.output_tokens),
            session=session,
            dense_session=dense,
            block_counts=_i64(self.block_counts) if self.block_counts else None,
            block_ids=ids if self.block_counts else None,
            arrival_s=self.arrival_s,
            bodies=self.bodies if self._has_body else None,
            left_out={FAILED: self.failed} if self.failed else {},
        )

    def _session_column(self) -> tuple[I64 | None, bool]:
        if not self._given_sessions:
            return None, False
        session = _i64(self._session)
        own = session < 0
        session[own] = len(self._sessions) + np.arange(int(own.sum()))
        labels = self._sessions
        if not own.any() and all(type(label) is int and 0 <= label < len(labels) for label in labels):
            given = np.fromiter(labels, np.int64, len(labels))
            return given[session], True
        return session, False


def check_blocks(fields: Fields, sink: RowSink, block_tokens: int, name: str = "hash_ids") -> None:
    """Every request has ceil(input tokens / block tokens) blocks.

    Raises:
        BadRequest: the first line where it has not.
    """
    counts, tokens = _i64(sink.block_counts), _i64(sink.input_tokens)
    wrong = np.flatnonzero(counts != -(-tokens // block_tokens))
    if len(wrong):
        row = int(wrong[0])
        problem = (
            f"has {counts[row]} blocks for {tokens[row]:,} tokens, "
            f"{-(-tokens[row] // block_tokens)} expected at {block_tokens} tokens a block"
        )
        mend = 'give the file\'s own block size in a first line {"kimi-tune-trace": 1, "block_size": N}'
        raise fields.file.error(sink.line[row], f"{name} {problem}", mend)


def fitting_block_size(sink: RowSink, preferred: int) -> int:
    """The block size that every request's number of blocks agrees with: `preferred` where it does, else the
    smallest power of two from 8 to 4,096 that does, else `preferred`.
    """
    counts, tokens = _i64(sink.block_counts), _i64(sink.input_tokens)
    for size in (preferred, *(1 << power for power in range(3, 13))):
        if np.array_equal(counts, -(-tokens // size)):
            return size
    return preferred


def _i64(values: array[int]) -> I64:
    return np.array(values, dtype=np.int64)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
