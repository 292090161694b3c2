"""A configuration as the truth sees it: the values in force of the flags that matter to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """What a server runs with."""

    seqs: int
    batched: int
    block: int
    length: int
    utilization: float
    prefixes: bool
    overlapped: bool
    """Asynchronous scheduling."""
    interval: int
    """Tokens a streamed chunk."""
    graphs: int
    """The largest batch with a CUDA graph."""
    tensor_parallel: int
    longest: int
    """The model's own length."""
