"""The batch sizes that vLLM captures CUDA graphs for."""

from __future__ import annotations

from functools import lru_cache

from tuner.space.effective import Effective
from tuner.space.versions import at_least

_LARGEST = 512
_MOST = 2**16


@lru_cache(maxsize=1024)
def capture_sizes(max_num_seqs: int, max_num_batched_tokens: int, version: str) -> tuple[int, ...]:
    """The sizes that vLLM takes by itself, ascending: up to min(2 x max-num-seqs, 512,
    max-num-batched-tokens); from 0.32 those two values themselves as well, where they lie within.
    """
    return _sizes(min(2 * max_num_seqs, _LARGEST), max_num_seqs, max_num_batched_tokens, version)


def _sizes(most: int, max_num_seqs: int, max_num_batched_tokens: int, version: str) -> tuple[int, ...]:
    """1, 2, 4, by 8 below 256, by 16 from there (vllm/config/vllm.py, _set_cudagraph_sizes)."""
    most = min(most, max_num_batched_tokens, _MOST)
    sizes = {n for n in (1, 2, 4) if n <= most}
    sizes.update(range(8, min(most + 1, 256), 8))
    sizes.update(range(256, most + 1, 16))
    if at_least(version, "0.32"):
        sizes.update(n for n in (max_num_seqs, max_num_batched_tokens) if 1 <= n <= most)
    return tuple(sorted(sizes))


def effective_capture_sizes(values: Effective, version: str) -> tuple[int, ...]:
    """The graph sizes of a configuration, ascending; () in eager mode."""
    if values.eager:
        return ()
    if values.capture_sizes is not None:
        return tuple(s for s in values.capture_sizes if s <= values.max_num_batched_tokens)
    if values.max_capture_size is not None:
        return _sizes(values.max_capture_size, values.max_num_seqs, values.max_num_batched_tokens, version)
    return capture_sizes(values.max_num_seqs, values.max_num_batched_tokens, version)
