"""Traces of evenly spaced requests."""

from __future__ import annotations

import numpy as np

from tuner.traces.trace import Trace, TraceSource


def even_trace(
    n: int = 20,
    *,
    rps: float = 40.0,
    prompt: int = 32,
    output: int = 16,
    blocks: list[list[int]] | None = None,
    block_tokens: int = 0,
    bodies: tuple[object, ...] | None = None,
) -> Trace:
    """Evenly spaced requests of one length."""
    lists = blocks if blocks is not None else [[] for _ in range(n)]
    return Trace(
        arrival_s=np.arange(n) / rps,
        input_tokens=np.full(n, prompt, np.int32),
        output_tokens=np.full(n, output, np.int32),
        session=np.arange(n),
        block_offsets=np.concatenate([[0], np.cumsum([len(b) for b in lists])]).astype(np.int64),
        block_ids=np.asarray([i for b in lists for i in b], np.int64),
        block_tokens=block_tokens,
        source=TraceSource("test"),
        bodies=bodies,
    )
