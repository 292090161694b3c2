"""Traces for the simulator's tests."""

from __future__ import annotations

import numpy as np

from tuner.traces.trace import Trace, TraceSource


def make_trace(
    arrival_s: object,
    input_tokens: object,
    output_tokens: object,
    blocks: list[list[int]] | None = None,
    block_tokens: int = 0,
) -> Trace:
    """A trace of plain columns."""
    arrival = np.asarray(arrival_s, dtype=np.float64)
    ids = blocks or [[] for _ in arrival]
    return Trace(
        arrival_s=arrival,
        input_tokens=np.broadcast_to(np.asarray(input_tokens, dtype=np.int32), arrival.shape).copy(),
        output_tokens=np.broadcast_to(np.asarray(output_tokens, dtype=np.int32), arrival.shape).copy(),
        session=np.arange(len(arrival), dtype=np.int64),
        block_offsets=np.cumsum([0, *(len(b) for b in ids)]).astype(np.int64),
        block_ids=np.array([i for b in ids for i in b], dtype=np.int64),
        block_tokens=block_tokens,
        source=TraceSource("test"),
    )
