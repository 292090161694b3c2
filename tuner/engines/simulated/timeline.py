"""What a simulation is told and what it tells: step costs, an observer, and the timeline of its requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class StepCost(Protocol):
    """What a step costs, in seconds. The decode cost is base + max(floor, fixed + slope x context)."""

    frontend_token_s: float
    """In the frontend, for each token."""
    frontend_crowd_s: float
    """The same once more for each token that the same step streams."""
    load_token_s: float
    """For each prompt token whose KV cache comes from the host."""

    def decode(self, decodes: int) -> tuple[float, float, float, float]:
        """(base, floor, fixed, slope) of a step with so many decodes and nothing else."""
        ...

    def mixed(
        self, decodes: int, context: int, tokens: int, pairs: int, reads: int, chunks: int, sampled: int
    ) -> float:
        """A step with `chunks` prompt chunks of `tokens` tokens in all beside the decodes.

        `context` sums the decodes' contexts, `pairs` the (query, key) pairs of the chunks, `reads` the
        contexts that the chunks attend to; `sampled` tokens come out.
        """
        ...


class Observer(Protocol):
    """Who watches a simulation."""

    def first(self, request: int, arrival_s: float, at_s: float) -> None:
        """A request got its first token."""
        ...

    def ended(self, request: int, arrival_s: float, first_s: float, at_s: float) -> None:
        """A request got its last token."""
        ...

    def stop(self, now_s: float) -> bool:
        """Called now and then; True ends the simulation."""
        ...


@dataclass(slots=True)
class Timeline:
    """What happened: times by request (NaN: never), virtual seconds, and the scheduler's own counters."""

    arrival_s: list[float]
    first_s: list[float]
    last_s: list[float]
    end_s: float = 0.0
    stopped: bool = False
    preemptions: int = 0
    steps: int = 0
    busy_s: float = 0.0
    running_s: float = 0.0
    hit_tokens: int = 0
    admitted: int = 0
