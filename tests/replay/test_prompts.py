"""Prompts: exact lengths, exact sharing, the same in every process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.replay.options import ClientOptions
from tuner.replay.prompts import Bodies, Prompts, TextScale
from tuner.traces.trace import Trace, TraceSource

ROOT = Path(__file__).parents[2]


def trace_of(requests: list[tuple[int, list[int]]], block_tokens: int) -> Trace:
    lists = [blocks for _, blocks in requests]
    return Trace(
        arrival_s=np.arange(len(requests), dtype=np.float64),
        input_tokens=np.asarray([length for length, _ in requests], np.int32),
        output_tokens=np.full(len(requests), 3, np.int32),
        session=np.arange(len(requests)),
        block_offsets=np.concatenate([[0], np.cumsum([len(b) for b in lists])]).astype(np.int64),
        block_ids=np.asarray([i for b in lists for i in b], np.int64),
        block_tokens=block_tokens,
        source=TraceSource("test"),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    size = draw(st.integers(1, 20))
    requests = []
    for _ in range(draw(st.integers(1, 6))):
        blocks = draw(st.lists(st.integers(0, 5), max_size=5))
        requests.append((draw(st.integers(1, 120)), blocks))
    return trace_of(requests, size)


def prompts_of(trace: Trace, options: ClientOptions, seed: int = 0) -> list[list[int]]:
    bodies = Bodies(trace, "m", options, seed=seed)
    return [orjson.loads(bodies.take(index)[1])["prompt"] for index in range(len(trace))]


@given(traces(), st.integers(0, 3))
def test_lengths_are_exact_and_shared_blocks_equal(trace: Trace, seed: int) -> None:
    options = ClientOptions(token_low=100, token_high=300)
    prompts = prompts_of(trace, options, seed)
    assert [len(prompt) for prompt in prompts] == trace.input_tokens.tolist()
    assert all(100 <= token < 300 for prompt in prompts for token in prompt)
    size = trace.block_tokens
    blocks: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        for at, block in enumerate(trace.blocks_of(index).tolist()):
            part = prompt[at * size : (at + 1) * size]
            known = blocks.setdefault(block, part)
            shorter = min(len(known), len(part))
            assert known[:shorter] == part[:shorter]
            blocks[block] = max(known, part, key=len)


@given(traces())
def test_bodies_built_late_are_those_built_beforehand(trace: Trace) -> None:
    early = prompts_of(trace, ClientOptions())
    assert prompts_of(trace, ClientOptions(body_memory_mib=0.0)) == early
    prompts = Prompts(trace)
    assert [prompts.tokens(index).tolist() for index in range(len(trace))] == early


def test_requests_without_blocks_share_nothing(make_trace: Callable[..., Trace]) -> None:
    prompts = prompts_of(make_trace(50, prompt=64), ClientOptions())
    assert len({tuple(prompt[:4]) for prompt in prompts}) == 50


def test_another_seed_shares_no_prefix(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(2, prompt=64, blocks=[[1, 2], [1, 3]], block_tokens=32)
    one, other = prompts_of(trace, ClientOptions(), 1), prompts_of(trace, ClientOptions(), 2)
    assert one[0][:32] == one[1][:32]
    assert one[0][32:] != one[1][32:]
    assert one[0][:8] != other[0][:8]


def test_the_same_in_another_process(make_trace: Callable[..., Trace]) -> None:
    code = (
        "import hashlib, sys; sys.path.insert(0, 'tests/replay')\n"
        "from test_prompts import trace_of, prompts_of, ClientOptions\n"
        "p = prompts_of(trace_of([(40, [1, 2]), (70, [1])], 16), ClientOptions(), 5)\n"
        "print(hashlib.sha256(repr(p).encode()).hexdigest())"
    )
    here = prompts_of(trace_of([(40, [1, 2]), (70, [1])], 16), ClientOptions(), 5)
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)},
    )
    assert there.stdout.strip() == hashlib.sha256(repr(here).encode()).hexdigest()


def test_the_body_asks_for_what_is_measured(make_trace: Callable[..., Trace]) -> None:
    path, body = Bodies(make_trace(1, output=9), "a/model", ClientOptions()).take(0)
    fields = orjson.loads(body)
    prompt = fields.pop("prompt")
    assert path == b"/completions"
    assert len(prompt) == 32
    assert fields == {
        "model": "a/model",
        "max_tokens": 9,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    _, longer = Bodies(make_trace(1, output=9), "m", ClientOptions(min_tokens=True, ignore_eos=False)).take(0)
    assert orjson.loads(longer)["min_tokens"] == 9
    assert "ignore_eos" not in orjson.loads(longer)


def test_texts_have_the_words_that_the_scale_asks_for(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(2, prompt=100, blocks=[[1, 2], [1, 3]], block_tokens=32)
    bodies = Bodies(trace, "m", ClientOptions(), chat=TextScale(overhead=20.0, per_word=2.0))
    path, body = bodies.take(0)
    words = orjson.loads(body)["messages"][0]["content"].split()
    other = orjson.loads(bodies.take(1)[1])["messages"][0]["content"].split()
    assert path == b"/chat/completions"
    assert len(words) == len(other) == 40
    assert words[:16] == other[:16]
    assert words[16:32] != other[16:32]


def test_recorded_bodies_are_sent_as_they_were(make_trace: Callable[..., Trace]) -> None:
    messages = [{"role": "user", "content": "grüß dich"}]
    recorded = (messages, {"messages": messages, "max_tokens": 3}, "a text", {"prompt": [1, 2, 3]})
    bodies = Bodies(make_trace(4, bodies=recorded), "m", ClientOptions())
    taken = [bodies.take(index) for index in range(4)]
    assert [path for path, _ in taken] == [b"/chat/completions"] * 2 + [b"/completions"] * 2
    fields = [orjson.loads(body) for _, body in taken]
    assert fields[0]["messages"] == fields[1]["messages"] == messages
    assert fields[1]["max_tokens"] == 16
    assert fields[2]["prompt"] == "a text"
    assert fields[3]["prompt"] == [1, 2, 3]


def test_a_range_of_ids_that_is_none(make_trace: Callable[..., Trace]) -> None:
    with pytest.raises(ValueError, match="no range"):
        Prompts(make_trace(1), low=50, high=50)
