"""From a file's columns to a Trace: what cannot be replayed left out, order mended, sessions numbered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tuner.errors import BadRequest
from tuner.traces.formats.base import ZERO_LENGTH, Columns
from tuner.traces.sessions import numbered, sessions_from_chains
from tuner.traces.steps import step_note
from tuner.traces.trace import F64, I64, Trace, TraceSource

Mask = NDArray[np.bool_]
NO_PREFIX = "no prefix information: every prompt is taken as new, so prefix caching shows no gain"


def assemble(columns: Columns, *, format: str, name: str, path: str | None = None) -> Trace:
    """A Trace of the columns.

    Raises:
        BadRequest: no request is left.
    """
    left_out, notes = dict(columns.left_out), list(columns.notes)
    keep = (columns.input_tokens > 0) & (columns.output_tokens > 0)
    dropped = int(len(keep) - np.count_nonzero(keep))
    if dropped:
        left_out[ZERO_LENGTH] = left_out.get(ZERO_LENGTH, 0) + dropped
    if not len(keep) or dropped == len(keep):
        raise BadRequest(f"{name}: no request in it{_counted(left_out)}", "give a trace with requests")
    order = _order(columns, keep, dropped, notes)
    trace = _in_order(columns, keep, order, TraceSource(format, path))
    note = step_note(trace)
    if note and note not in notes:
        notes.append(note)
    if not trace.block_tokens and NO_PREFIX not in notes:
        notes.append(NO_PREFIX)
    if trace.duration_s == 0:
        notes.append("all requests arrive at once: loads are scaled as if the trace lasted 1 s")
    source = TraceSource(
        format=format,
        path=path,
        prefix_reuse=bool(trace.block_tokens),
        left_out=left_out,
        notes=tuple(dict.fromkeys(notes)),
        changes=columns.changes,
    )
    return replace(trace, source=source)


def _order(columns: Columns, keep: Mask, dropped: int, notes: list[str]) -> I64 | None:
    """The rows to take, by time; None where that is all of them as they are."""
    inversions = int(np.count_nonzero(np.diff(columns.time_ns) < 0))
    if not dropped and not inversions:
        return None
    order = np.flatnonzero(keep)
    if inversions:
        order = order[np.argsort(columns.time_ns[order], kind="stable")]
        were = "request was" if inversions == 1 else "requests were"
        notes.append(f"order mended: {inversions} {were} earlier than the one before")
    return order


def _in_order(columns: Columns, keep: Mask, order: I64 | None, source: TraceSource) -> Trace:
    time_ns, inputs, outputs = columns.time_ns, columns.input_tokens, columns.output_tokens
    session, arrival = columns.session, _arrivals(columns, keep)
    counts, bodies = columns.block_counts, columns.bodies
    ids = columns.block_ids if columns.block_ids is not None else np.empty(0, np.int64)
    n = len(time_ns)
    offsets = np.zeros(n + 1, np.int64)
    if counts is not None:
        np.cumsum(counts, out=offsets[1:])
    trace = Trace(
        arrival_s=arrival,
        input_tokens=inputs.astype(np.int32, copy=False),
        output_tokens=outputs.astype(np.int32, copy=False),
        session=session if session is not None else np.arange(n, dtype=np.int64),
        block_offsets=offsets,
        block_ids=ids,
        block_tokens=columns.block_tokens if counts is not None else 0,
        source=source,
        bodies=tuple(bodies) if bodies is not None else None,
    )
    if order is not None:
        trace = trace.take(order)
    if columns.chain_sessions:
        chained, first = sessions_from_chains(trace), columns.unnamed_from
        if first is not None:
            chained = numbered(np.where(trace.session < first, trace.session, first + chained))
        return replace(trace, session=chained)
    if columns.dense_session and _is_dense(trace.session):
        return trace
    return replace(trace, session=numbered(trace.session) if session is not None else np.arange(len(trace)))


def _arrivals(columns: Columns, keep: Mask) -> F64:
    """Seconds from the earliest time of the rows that are kept, exact to the nanosecond."""
    if columns.arrival_s:
        absolute: F64 = columns.time_ns / 1e9
        for row, exact in columns.arrival_s.items():
            absolute[row] = exact
        return np.asarray(absolute - absolute[keep].min(), np.float64)
    arrival: F64 = (columns.time_ns - columns.time_ns[keep].min()) / 1e9
    return arrival


def _is_dense(session: I64) -> bool:
    return bool(len(session)) and len(np.unique(session)) == int(session.max()) + 1


def _counted(left_out: Mapping[str, int]) -> str:
    parts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    return f" (left out: {parts})" if parts else ""
