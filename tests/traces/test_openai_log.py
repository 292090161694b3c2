"""Request logs: times, lengths, texts and conversations as they come."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import BadRequest
from tuner.traces import Trace, inspect, load_trace

Write = Callable[..., Path]
SYSTEM = {"role": "system", "content": "You help customers of a shop for bicycles. " * 20}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def log(trace_file: Write, *rows: dict[str, Any]) -> Trace:
    return load_trace(trace_file("\n".join(json.dumps(row) for row in rows).encode(), "log.jsonl"))


def test_usage_goes_before_estimates(trace_file: Write) -> None:
    trace = log(
        trace_file,
        {"time": 10, "body": {"messages": [user("hi")], "max_tokens": 500}}
        | {"usage": {"prompt_tokens": 21, "completion_tokens": 7}},
        {"time": 11, "request": {"messages": [user("hi")], "max_completion_tokens": 50}}
        | {
            "response": {"status_code": 200, "body": {"usage": {"prompt_tokens": 22, "completion_tokens": 9}}}
        },
        {"time": 12, "messages": [user("x" * 400)], "max_tokens": 30},
        {"time": 13, "prompt": [5] * 40, "max_tokens": 8},
    )
    assert trace.input_tokens.tolist() == [21, 22, 102, 40]
    assert trace.output_tokens.tolist() == [7, 9, 30, 8]
    assert "1 prompts counted at 4 characters a token" in trace.source.notes
    assert "2 answers taken as long as max_tokens allows" in trace.source.notes
    assert trace.bodies is not None
    assert trace.bodies[0] == [user("hi")] and trace.bodies[3] == [5] * 40


@pytest.mark.parametrize(
    "times",
    [
        (1700000000, 1700000001.5),
        (1700000000000, 1700000001500),
        (1700000000000000, 1700000001500000),
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21.500Z"),
        ("2023-11-14T22:13:20", "2023-11-14 22:13:21.5"),
        ("2023-11-14T23:13:20+01:00", "2023-11-14T22:13:21.5+00:00"),
        ("1700000000", "1700000001.5"),
    ],
)
def test_times_of_every_kind(times: tuple[Any, Any], trace_file: Write) -> None:
    rows = [{"timestamp": time, "prompt": "hello", "max_tokens": 3} for time in times]
    assert log(trace_file, *rows).arrival_s.tolist() == [0.0, 1.5]


def test_failed_requests_are_left_out(trace_file: Write) -> None:
    good = {"prompt": "hello", "max_tokens": 3}
    trace = log(
        trace_file,
        {"timestamp": 1, **good},
        {"timestamp": 2, "status_code": 429, **good},
        {"timestamp": 3, "status": 500, **good},
        {"timestamp": 4, "error": "timed out", **good},
        {"timestamp": 5, "status": 200, "error": None, **good},
    )
    assert len(trace) == 2 and dict(trace.source.left_out) == {"failed": 3}


def test_conversations_and_shared_prefixes(trace_file: Write) -> None:
    first = [SYSTEM, user("my chain is broken " * 10)]
    second = [*first, {"role": "assistant", "content": "which bike is it? " * 8}, user("the red one " * 9)]
    other = [SYSTEM, user("where is my parcel? " * 10)]
    rows = [
        {"timestamp": at, "body": {"messages": messages, "max_tokens": 100}}
        for at, messages in enumerate([first, other, second, other])
    ]
    trace = log(trace_file, *rows)
    assert trace.session.tolist() == [0, 1, 0, 2]
    assert trace.block_tokens == 16
    shared = len(SYSTEM["content"]) // 64
    assert trace.blocks_of(0)[:shared].tolist() == trace.blocks_of(1)[:shared].tolist()
    assert trace.blocks_of(0)[:-1].tolist() == trace.blocks_of(2)[: len(trace.blocks_of(0)) - 1].tolist()
    assert trace.blocks_of(1).tolist() == trace.blocks_of(3).tolist()
    assert set(trace.blocks_of(0)[shared + 1 :].tolist()).isdisjoint(trace.blocks_of(1).tolist())
    reuse = inspect(trace).prefix_reuse
    assert reuse is not None and reuse > 0.6


def test_messages_nested_without_end(trace_file: Write) -> None:
    deep = '{"role": "user", "content": ' + "[" * 600 + "]" * 600 + "}"
    data = f'{{"timestamp": 1, "messages": [{deep}], "max_tokens": 3}}'
    with pytest.raises(BadRequest, match="line 1: messages is nested too deeply"):
        load_trace(trace_file(data.encode()))


def test_sessions_that_the_log_names(trace_file: Write) -> None:
    row = {"messages": [user("hi")], "max_tokens": 3}
    trace = log(trace_file, *({"timestamp": at, "session_id": name, **row} for at, name in enumerate("aba")))
    assert trace.session.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "change, said",
    [
        ({"messages": None}, "messages is missing, and so is prompt"),
        ({"messages": []}, "messages is not a list of messages"),
        ({"messages": ["hi"]}, "messages is not a list of messages"),
        ({"messages": None, "prompt": ["a", "b"]}, "prompt is neither a string nor a list of token ids"),
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"timestamp": "yesterday"}, "timestamp is 'yesterday', not a time"),
        ({"usage": {"prompt_tokens": -1}}, "prompt_tokens is -1, not a whole number of tokens"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], said: str, trace_file: Write) -> None:
    good = {"timestamp": 1, "messages": [user("hi")], "max_tokens": 3}
    with pytest.raises(BadRequest) as caught:
        log(trace_file, good, good | change)
    assert caught.value.what == f"log.jsonl, line 2: {said}"
