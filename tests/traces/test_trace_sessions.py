"""Conversations found from prompts that grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_examples import make_trace

from tuner.traces import load_trace
from tuner.traces.sessions import SHARED_FROM, numbered, sessions_from_chains

Write = Callable[..., Path]


@given(
    turns=st.lists(st.integers(0, 19), min_size=1, max_size=120),
    growth=st.integers(1, 4),
    shared=st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_conversations_behind_a_shared_prompt(turns: list[int], growth: int, shared: int) -> None:
    """Interleaved conversations are told apart, given enough of them to see what they share."""
    talks = list(range(SHARED_FROM)) + turns
    length: dict[int, int] = {}
    blocks, cut = [], 10**6
    for talk in talks:
        length[talk] = length.get(talk, 0) + growth
        cut += 1
        blocks.append([*range(shared), *(1000 * (talk + 1) + k for k in range(length[talk])), cut])
    found = sessions_from_chains(make_trace(range(len(talks)), blocks=blocks)).tolist()
    order: dict[int, int] = {}
    assert found == [order.setdefault(talk, len(order)) for talk in talks]


def test_a_fork_stays_in_its_session() -> None:
    trace = make_trace(range(3), blocks=[[0, 1, 2], [0, 1, 3, 4], [0, 1, 5, 6]])
    assert sessions_from_chains(trace).tolist() == [0, 0, 0]


def test_prompts_without_blocks() -> None:
    assert sessions_from_chains(make_trace(range(2), blocks=[[], [7]])).tolist() == [0, 1]


def test_numbered_by_first_appearance() -> None:
    assert numbered(make_trace(range(5)).session[[4, 2, 4, 0, 2]]).tolist() == [0, 1, 0, 2, 1]


def test_mooncake_with_session_ids_keeps_them(trace_file: Write) -> None:
    row = {"input_length": 10, "output_length": 1, "hash_ids": [0]}
    rows = [{"timestamp": at, "session_id": name, **row} for at, name in enumerate(["x", "y", "x", None])]
    assert load_trace(trace_file("\n".join(map(json.dumps, rows)).encode())).session.tolist() == [0, 1, 0, 2]


def test_bailian_chains_go_back_to_the_first_chat(trace_file: Write) -> None:
    row = {"input_length": 10, "output_length": 1, "hash_ids": [0], "type": "text", "turn": 1}
    links = [(1, -1), (2, 1), (3, 2), (4, -1), (5, 999), (6, 3)]
    rows = [{"chat_id": chat, "parent_chat_id": parent, "timestamp": chat, **row} for chat, parent in links]
    trace = load_trace(trace_file("\n".join(map(json.dumps, rows)).encode()))
    assert trace.session.tolist() == [0, 0, 0, 1, 2, 0]


def test_burstgpt_without_session_ids(trace_file: Write) -> None:
    data = (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n"
        b"5,ChatGPT,472,18,490,Conversation log\r\n"
        b'9,"GPT-4",10,0,10,API log\r\n'
        b"9,GPT-4,10,3,13,API log"
    )
    trace = load_trace(trace_file(data))
    assert trace.session.tolist() == [0, 1] and trace.arrival_s.tolist() == [0.0, 4.0]
    assert dict(trace.source.left_out) == {"failed": 1}
