"""Which prompts share which vLLM blocks, as runs of blocks, so that a prompt costs a few look-ups.

A trace names prompt blocks of its own size (512 tokens in Mooncake's). A vLLM block belongs to the trace
block that holds its last token, whose id vouches for everything before it. Blocks that the same requests
share become one run; what no other request shares is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from tuner.traces.trace import I64, Trace


@dataclass(frozen=True, slots=True)
class Prefixes:
    """`chains[i]` are the runs that request i's prompt begins with; `blocks[r]` is the length of run r.

    Where a prompt ends with a block, that block is a run of its own: vLLM computes the last token anew, and
    with it the whole block.
    """

    chains: list[tuple[int, ...]]
    blocks: list[int]


# one trace at one load is replayed against many configurations
_KEPT: WeakKeyDictionary[Trace, dict[int, Prefixes]] = WeakKeyDictionary()


def no_prefixes(requests: int) -> Prefixes:
    """Nothing shared."""
    return Prefixes([()] * requests, [])


def prefixes_of(trace: Trace, block_size: int) -> Prefixes:
    """The runs of `block_size`-token blocks that requests of the trace share; kept while the trace is."""
    kept = _KEPT.setdefault(trace, {})
    if block_size not in kept:
        kept[block_size] = _find(trace, block_size)
    return kept[block_size]


def _find(trace: Trace, block_size: int) -> Prefixes:
    requests = len(trace)
    if not trace.block_tokens or not len(trace.block_ids):
        return no_prefixes(requests)
    counts = np.diff(trace.block_offsets)
    owner = np.repeat(np.arange(requests), counts)
    place = np.arange(len(owner)) - np.repeat(trace.block_offsets[:-1], counts)
    prompt = trace.input_tokens.astype(np.int64)[owner]
    end = np.minimum((place + 1) * trace.block_tokens, prompt)
    size = np.maximum(end // block_size - place * trace.block_tokens // block_size, 0)
    last = place == counts[owner] - 1
    _, key = np.unique(trace.block_ids, return_inverse=True)
    if size.min() != size.max():
        _, key = np.unique(key * (int(size.max()) + 1) + size, return_inverse=True)
    seen = np.bincount(key)
    alone = np.zeros(len(seen), dtype=bool)
    alone[key[last & (prompt % block_size == 0) & (end == prompt) & (size > 0)]] = True
    shared = _leading(seen[key] >= 2, place, trace.block_offsets, counts)
    return _runs(requests, owner[shared], key[shared], size[shared], seen, alone)


def _leading(good: np.ndarray, place: I64, offsets: I64, counts: I64) -> np.ndarray:
    """Which entries come before the first that is not good, request by request."""
    first_bad = np.full(len(counts), np.iinfo(np.int64).max)
    some = counts > 0
    if some.any():
        bad_place = np.where(good, np.iinfo(np.int64).max, place)
        first_bad[some] = np.minimum.reduceat(bad_place, offsets[:-1][some])
    return np.asarray(place < np.repeat(first_bad, counts))


def _runs(requests: int, owner: I64, key: I64, size: I64, seen: I64, alone: np.ndarray) -> Prefixes:
    if not len(owner):
        return no_prefixes(requests)
    split = alone[key]
    times = 1 + split
    owner, key, size = np.repeat(owner, times), np.repeat(key, times), np.repeat(size, times)
    ends = np.cumsum(times) - 1
    tail = np.zeros(len(owner), dtype=bool)
    tail[ends[split]] = True
    head = np.zeros(len(owner), dtype=bool)
    head[ends[split] - 1] = True
    size = np.where(tail, 1, size - head)
    begins = np.ones(len(owner), dtype=bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (seen[key[1:]] != seen[key[:-1]]) | tail[1:] | tail[:-1]
    starts = np.flatnonzero(begins)
    length = np.add.reduceat(size, starts)
    _, first, run = np.unique(key[starts] * 2 + tail[starts], return_index=True, return_inverse=True)
    keep = length > 0
    chain_of, run = owner[starts][keep], run.reshape(-1)[keep].tolist()
    bounds = np.searchsorted(chain_of, np.arange(requests + 1)).tolist()
    chains = [tuple(run[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]
    return Prefixes(chains, length[first].tolist())
