"""Conversations found in traces that do not name them, from the way their prompts grow."""

from __future__ import annotations

import numpy as np

from tuner.traces.trace import I64, Trace

SHARED_FROM = 6
"""A block that so many different blocks follow is taken as shared between sessions (a system prompt)."""


def sessions_from_chains(trace: Trace) -> I64:
    """A session number for each request, dense from 0 in order of appearance.

    Block ids stand for whole prefixes, so a prompt that contains the last full block of an earlier prompt
    continues that conversation. The last block of a prompt is usually cut short and comes back under another
    id, so the one before it is looked for. Blocks with SHARED_FROM or more different successors, and all in
    front of them, belong to no session. One pass over the ids to count successors and one to follow them.
    """
    ids, offsets = trace.block_ids, trace.block_offsets
    shared = _shared_blocks(ids, offsets)
    ends: dict[int, int] = {}
    session = np.empty(len(trace), np.int64)
    count = 0
    bounds = offsets.tolist()
    for index in range(len(trace)):
        blocks = ids[bounds[index] : bounds[index + 1]].tolist()
        found = -1
        for block in reversed(blocks):
            if block in ends:
                found = ends[block]
                break
            if block in shared:
                break
        if found < 0:
            found = count
            count += 1
        session[index] = found
        for block in blocks[-2:]:
            if block not in shared:
                ends[block] = found
    return session


def numbered(labels: I64) -> I64:
    """Labels renumbered densely from 0 in the order of their first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


def _shared_blocks(ids: I64, offsets: I64) -> set[int]:
    """Ids that SHARED_FROM or more different ids follow."""
    if len(ids) < 2:
        return set()
    inside = np.ones(len(ids), bool)
    starts = offsets[:-1]
    inside[starts[starts < len(ids)]] = False
    at = np.flatnonzero(inside)
    values, dense = np.unique(ids, return_inverse=True)
    pairs = np.sort(dense[at - 1] * np.int64(len(values)) + dense[at])
    distinct = pairs[np.flatnonzero(np.diff(pairs, prepend=-1))]
    successors = np.bincount(distinct // len(values), minlength=len(values))
    return set(values[successors >= SHARED_FROM].tolist())
