"""Which turn of a session follows which, and how long its user thought in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.traces.trace import Trace

RECORDED_TOKEN_S = 0.02
"""A trace says when a turn came, not when the answer before it had ended: that is taken to have streamed at
50 tokens a second, and the rest of the gap to have been thought."""


@dataclass(frozen=True, slots=True)
class Turns:
    """By request of a trace: the request that is its session's next turn (-1: none), how long in seconds its
    user thought before it, and the requests that open their sessions, ascending.
    """

    next: list[int]
    think_s: list[float]
    opening: list[int]

    def due_s(self, turn: int, arrival_s: float, ended_s: float) -> float:
        """When a turn is due: as recorded, but not before its user has read and thought."""
        return max(arrival_s, ended_s + self.think_s[turn])


def turns_of(trace: Trace) -> Turns:
    """The turns of a trace's sessions, in their order of arrival."""
    n = len(trace)
    order = np.argsort(trace.session, kind="stable")
    same = trace.session[order][1:] == trace.session[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    following = np.full(n, -1, np.int64)
    following[before] = after
    think = np.zeros(n)
    gap = trace.arrival_s[after] - trace.arrival_s[before]
    think[after] = np.maximum(gap - RECORDED_TOKEN_S * trace.output_tokens[before], 0.0)
    opening = np.ones(n, bool)
    opening[after] = False
    return Turns(following.tolist(), think.tolist(), np.flatnonzero(opening).tolist())
