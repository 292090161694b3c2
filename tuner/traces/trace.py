"""Recorded traffic in numpy columns: who asked when, how much went in and came out, and what was shared."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Where a trace came from and what was done to it.

    `left_out` counts rows dropped by reason, `notes` are sentences for the user ("order mended: 1 row"),
    `changes` records scaling, thinning and the like with seed and dispersion.
    """

    format: str
    path: str | None = None
    prefix_reuse: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Trace:
    """n requests, ordered by arrival.

    `arrival_s` starts at 0 in a trace as loaded. `session` numbers conversations densely from 0. The prompt's
    prefix blocks of request i are `block_ids[block_offsets[i]:block_offsets[i + 1]]`, each `block_tokens`
    long (the last may be shorter); equal ids mean equal tokens behind equal prefixes. A trace without prefix
    information has `block_tokens` 0 and no ids. `bodies` holds recorded prompts or messages where there are
    any.
    """

    arrival_s: F64
    input_tokens: I32
    output_tokens: I32
    session: I64
    block_offsets: I64
    block_ids: I64
    block_tokens: int
    source: TraceSource
    bodies: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def duration_s(self) -> float:
        """Seconds between the first and the last arrival."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    @property
    def rate_rps(self) -> float:
        """Mean requests a second over the trace's own span (infinite when all arrive at once)."""
        return (len(self) - 1) / self.duration_s if self.duration_s > 0 else float("inf")

    def blocks_of(self, index: int) -> I64:
        """The prefix block ids of one request."""
        return self.block_ids[self.block_offsets[index] : self.block_offsets[index + 1]]

    def take(self, indices: I64) -> Trace:
        """The requests at `indices` (ascending), arrivals and ids unchanged."""
        starts, stops = self.block_offsets[indices], self.block_offsets[indices + 1]
        lengths = stops - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        gather = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return replace(
            self,
            arrival_s=self.arrival_s[indices],
            input_tokens=self.input_tokens[indices],
            output_tokens=self.output_tokens[indices],
            session=self.session[indices],
            block_offsets=offsets,
            block_ids=self.block_ids[gather],
            bodies=tuple(self.bodies[i] for i in indices) if self.bodies is not None else None,
        )

    def coverage(self, max_model_len: int) -> float:
        """Share of the requests whose prompt and answer together fit `max_model_len` tokens."""
        if not len(self):
            return 1.0
        total = self.input_tokens.astype(np.int64) + self.output_tokens
        return float(np.mean(total <= max_model_len))

    def digest(self) -> str:
        """Short digest of the columns: two files with the same requests have the same digest."""
        sha = hashlib.sha256()
        sha.update(str(self.block_tokens).encode())
        for column in (
            self.arrival_s,
            self.input_tokens,
            self.output_tokens,
            self.session,
            self.block_offsets,
            self.block_ids,
        ):
            sha.update(np.ascontiguousarray(column).tobytes())
        return sha.hexdigest()[:16]
