"""What is written is read again to the last bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_examples import make_trace, traces

from tuner.traces import NestedLoads, Trace, load_trace, shipped_trace, window, write_trace

CHAT = window(shipped_trace(), 0.0, 0.1)
same_folder = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(trace=traces())
@same_folder
def test_any_trace(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(trace, path)
    again = load_trace(path)
    assert again.arrival_s.tobytes() == trace.arrival_s.tobytes()
    assert again.digest() == trace.digest()


@given(share=st.floats(0.1, 4), requests=st.integers(2, 60))
@same_folder
def test_scaled_traces_with_their_record(share: float, requests: int, tmp_path: Path) -> None:
    loads = NestedLoads(CHAT, requests=requests)
    trace = loads.at(share * loads.natural_rps)
    path = tmp_path / "trace.jsonl"
    write_trace(trace, path)
    again = load_trace(path)
    assert again.arrival_s.tobytes() == trace.arrival_s.tobytes()
    assert again.block_ids.tolist() == trace.block_ids.tolist()
    pairs = set(zip(again.session.tolist(), trace.session.tolist(), strict=True))
    assert len(pairs) == len(set(again.session.tolist())) == len(set(trace.session.tolist()))
    assert [dict(change) for change in again.source.changes] == json.loads(
        json.dumps([dict(change) for change in trace.source.changes])
    )


def test_recorded_texts(tmp_path: Path) -> None:
    bodies = ("häl\u2028lo", [{"role": "user", "content": "hi"}], None, [1, 2, 3])
    trace = replace(make_trace([0, 1, 2, 3]), bodies=bodies)
    write_trace(trace, tmp_path / "t.jsonl")
    assert load_trace(tmp_path / "t.jsonl").bodies == bodies


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_packed_by_its_name(ending: str, tmp_path: Path) -> None:
    if ending.endswith("zst"):
        pytest.importorskip("zstandard")
    path = tmp_path / f"t{ending}"
    trace = make_trace(np.arange(100) / 3)
    write_trace(trace, path)
    first = path.read_bytes()
    write_trace(trace, path)
    assert path.read_bytes() == first
    assert first.startswith({"l": b'{"kimi', "z": b"\x1f\x8b", "t": b"\x28\xb5"}[ending[-1]])
    assert load_trace(path).digest() == trace.digest()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_rows_are_in_mooncakes_fields(tmp_path: Path) -> None:
    write_trace(make_trace([0, 0.25, 1.5], [0, 1, 0], [[1], [1, 2], [1, 3]]), tmp_path / "t.jsonl", seed=4)
    first, *rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert first == {
        "kimi-tune-trace": 1, "block_size": 64, "prefix_reuse": "recorded", "requests": 3, "seed": 4
    }  # fmt: skip
    assert rows[1] == {
        "timestamp": 250, "input_length": 128, "output_length": 5, "hash_ids": [1, 2], "session_id": 1
    }  # fmt: skip
