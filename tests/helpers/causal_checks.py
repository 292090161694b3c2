"""What a replay of causal sessions has to show, whichever engine served it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.replay import Replay
from tuner.traces import Trace
from tuner.traces.causal import RECORDED_TOKEN_S


def in_sessions(trace: Trace, turns: int) -> Trace:
    """The trace with its requests dealt to sessions of so many turns, one after the other in each."""
    return replace(trace, session=np.arange(len(trace)) % -(-len(trace) // turns))


def assert_causal(trace: Trace, replay: Replay, *, to_s: float = 1e-9) -> int:
    """Every turn was due at its recorded time, or when the answer before had ended and been thought about;
    returns how many were held up.
    """
    ended = np.where(np.isnan(replay.last_s), np.inf, replay.last_s)
    last: dict[int, int] = {}
    held_up = 0
    for index, session in enumerate(trace.session.tolist()):
        recorded = float(trace.arrival_s[index])
        before = last.get(session)
        if before is not None and np.isfinite(ended[before]):
            gap = recorded - float(trace.arrival_s[before])
            think = max(0.0, gap - RECORDED_TOKEN_S * int(trace.output_tokens[before]))
            due = max(recorded, float(ended[before]) + think)
            held_up += due > recorded + to_s
        elif before is None:
            due = recorded
        else:
            due = float(replay.scheduled_s[index])
            assert due >= recorded
        assert abs(float(replay.scheduled_s[index]) - due) <= to_s, (index, due)
        assert not replay.sent_s[index] < due - 0.001
        last[session] = index
    return held_up
