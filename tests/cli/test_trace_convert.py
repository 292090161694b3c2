"""`trace convert`: what it changes on request, and what it never does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tuner.traces import load_trace


def stepped(path: Path) -> Path:
    """Thirty requests, ten at a time every 3 s."""
    rows = [
        {"timestamp": 3000 * (i // 10), "input_length": 20, "output_length": 5, "hash_ids": [i]}
        for i in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_steps_are_spread_on_request_and_recorded(kimi_tune, tmp_path: Path) -> None:
    source = stepped(tmp_path / "in.jsonl")
    assert kimi_tune("trace", "convert", source, "plain.jsonl").code == 0
    assert len(np.unique(load_trace(Path("plain.jsonl")).arrival_s)) == 3
    assert kimi_tune("trace", "convert", source, "spread.jsonl", "--spread-steps").code == 0
    spread = load_trace(Path("spread.jsonl"))
    assert np.allclose(np.diff(spread.arrival_s), 0.3)
    assert [change["change"] for change in spread.source.changes] == ["spread-steps"]


def test_a_part_is_taken_and_time_compressed_on_request_and_recorded(kimi_tune, tmp_path: Path) -> None:
    source = stepped(tmp_path / "in.jsonl")
    ran = kimi_tune("trace", "convert", source, "out.jsonl", "--window", "0.4:1", "--speed", "1.5")
    assert ran.code == 0 and "changed: compress time, factor 1.5; before: " in ran.err
    made = load_trace(Path("out.jsonl"))
    assert len(made) == 20 and made.duration_s == 2.0
    assert [change["change"] for change in made.source.changes] == ["window", "compress-time"]
    assert all({"dispersion_before", "dispersion_after"} <= set(change) for change in made.source.changes)
    for wrong in ("1:0.5", "x"):
        ran = kimi_tune("trace", "convert", source, "no.jsonl", "--window", wrong)
        assert ran.code == 2 and "--window" in ran.err and not Path("no.jsonl").exists()


def test_a_trace_without_steps_is_refused(kimi_tune, tmp_path: Path) -> None:
    stepped(tmp_path / "in.jsonl")
    kimi_tune("trace", "convert", "in.jsonl", "spread.jsonl", "--spread-steps")
    ran = kimi_tune("trace", "convert", "spread.jsonl", "again.jsonl", "--spread-steps")
    assert ran.code == 2 and "steps" in ran.err
    assert not Path("again.jsonl").exists()


def test_nothing_is_overwritten(kimi_tune, tmp_path: Path) -> None:
    source = stepped(tmp_path / "in.jsonl")
    before = source.read_bytes()
    ran = kimi_tune("trace", "convert", source, source)
    assert ran.code == 2 and "is there already" in ran.err
    assert source.read_bytes() == before
