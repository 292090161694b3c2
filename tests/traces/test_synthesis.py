"""The trace that ships, and others made up like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuner.errors import BadRequest
from tuner.traces import SupportChat, dispersion, inspect, shipped_trace, synthesize
from tuner.traces.load import SHIPPED


def test_the_shipped_file_is_what_synthesis_gives() -> None:
    assert shipped_trace().digest() == synthesize().digest()
    assert shipped_trace().source.changes[0]["seed"] == SupportChat().seed
    assert '"seed":5' in SHIPPED.read_text().splitlines()[0]
    assert SHIPPED.stat().st_size < 1_000_000


def test_the_shipped_trace_is_what_it_is_said_to_be() -> None:
    chat = shipped_trace()
    assert len(chat) == 2000
    assert chat.duration_s == 1200.0
    assert 0.95 <= chat.coverage(8192) < 0.99
    assert chat.coverage(16384) == 1.0
    figures = inspect(chat)
    assert figures.turns["mean"] > 3
    assert figures.prefix_reuse is not None and figures.prefix_reuse > 0.6
    bursts = dispersion(chat.arrival_s)
    assert bursts["iod_60s"] is not None and bursts["iod_60s"] > 4
    by_minute = np.histogram(chat.arrival_s, bins=20)[0]
    assert by_minute.max() > 2 * by_minute.min() > 0


def test_every_turn_continues_the_last() -> None:
    chat = shipped_trace()
    last: dict[int, int] = {}
    for index, session in enumerate(chat.session.tolist()):
        assert chat.blocks_of(index)[:19].tolist() == list(range(19))
        if session in last:
            before = last[session]
            grown = int(chat.input_tokens[before]) + int(chat.output_tokens[before])
            assert chat.input_tokens[index] > grown
            full = int(chat.input_tokens[before]) // chat.block_tokens
            assert chat.blocks_of(index)[:full].tolist() == chat.blocks_of(before)[:full].tolist()
            assert chat.arrival_s[index] > chat.arrival_s[before]
        last[session] = index


def test_parameters_are_kept() -> None:
    chat = SupportChat(requests=300, duration_s=90.0, seed=9, block_tokens=16, turns=1.0, longest=3000)
    trace = synthesize(chat)
    assert len(trace) == 300 and trace.duration_s == 90.0 and trace.block_tokens == 16
    assert (trace.input_tokens + trace.output_tokens).max() <= 3000
    assert inspect(trace).turns["max"] == 1
    assert trace.digest() == synthesize(chat).digest() != synthesize(replace(chat, seed=10)).digest()


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 1},
        {"duration_s": 0.0},
        {"turns": 0.5},
        {"block_tokens": 0},
        {"longest": 900},
        {"swing_s": 0.0},
        {"burst_share": 1.0},
    ],
)
def test_parameters_that_give_no_trace(wrong: dict[str, float]) -> None:
    with pytest.raises(BadRequest):
        synthesize(SupportChat(**wrong))  # type: ignore[arg-type]
