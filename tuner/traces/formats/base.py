"""What a trace format is: it knows its files by their first line, and reads them into plain columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.traces.files import TraceFile
from tuner.traces.trace import I64

MAX_TOKENS = 2**31 - 1
MAX_SECONDS = 4_500_000_000
"""Either side of 1970, so that the difference of any two times is within 64 bits of nanoseconds."""
YEARS = range(1850, 2110)
ZERO_LENGTH = "zero length"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a file that is not blank: a JSON object, or CSV columns' names in lower case."""

    text: str
    json: Mapping[str, Any] | None
    columns: tuple[str, ...]


@dataclass(slots=True)
class Columns:
    """n requests as a file gives them, in its order.

    `time_ns` counts from any origin. `session` holds equal numbers for requests of one session (None: each
    request is its own), `dense_session` says that they are kept as they are. `block_counts` says how many of
    `block_ids` each request has (both None: no prefix information). `chain_sessions` asks for sessions to be
    found from block ids, with `unnamed_from` only for rows whose number in `session` is not below it.
    """

    time_ns: I64
    input_tokens: NDArray[np.integer[Any]]
    output_tokens: NDArray[np.integer[Any]]
    session: I64 | None = None
    dense_session: bool = False
    block_counts: I64 | None = None
    block_ids: I64 | None = None
    block_tokens: int = 0
    chain_sessions: bool = False
    unnamed_from: int | None = None
    arrival_s: Mapping[int, float] = field(default_factory=dict)
    bodies: list[Any] | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    changes: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format: `name` for machines, `title` for people; `matches` goes by content alone.

    `read` raises BadRequest that names file, line and field.
    """

    name: str
    title: str
    matches: Callable[[Head], bool]
    read: Callable[[TraceFile], Columns]
