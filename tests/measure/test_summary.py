"""The object that `replay --json` prints."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tuner.measure import achieved, finite, judge, summarize
from tuner.replay import Replay
from tuner.spec import Slo

KEYS = {
    "verdict",
    "offered_rps",
    "achieved_rps",
    "requests",
    "failed",
    "e2e_s",
    "ttft_s",
    "tpot_s",
    "lag_s",
    "output_tps",
    "goodput_rps",
    "attainment",
    "invalid_reason",
}
SLO = Slo(e2e_p99_s=10.0)


def test_every_key_and_plain_json(make_replay: Callable[..., Replay]) -> None:
    summary = summarize(judge(make_replay(np.tile(np.linspace(1, 8, 50), 20)), SLO), SLO)
    assert summary.keys() >= KEYS
    assert set(summary["e2e_s"]) == {"mean", "p50", "p90", "p99", "p99_interval"}
    assert set(summary["lag_s"]) == {"p50", "p99", "max"}
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["verdict"] == "PASS"
    assert summary["lag_s"]["p99"] == pytest.approx(0.001)


def test_infinities_become_null(make_replay: Callable[..., Replay]) -> None:
    summary = summarize(judge(make_replay(np.full(100, 2.0), failed=range(50, 100)), SLO), SLO)
    assert summary["e2e_s"]["p50"] == 2.0
    assert summary["e2e_s"]["p90"] is None
    assert summary["e2e_s"]["p99"] is None
    assert summary["e2e_s"]["mean"] == 2.0
    assert summary["failed"] == 50
    json.dumps(summary, allow_nan=False)


def test_nothing_answered(make_replay: Callable[..., Replay]) -> None:
    summary = summarize(judge(make_replay(np.full(5, 2.0), failed=range(5)), SLO), SLO)
    assert summary["e2e_s"]["mean"] is None
    assert (summary["achieved_rps"], summary["output_tps"], summary["goodput_rps"]) == (0.0, 0.0, 0.0)
    json.dumps(summary, allow_nan=False)


def test_throughput_counts_answers_and_goodput_those_in_time(make_replay: Callable[..., Replay]) -> None:
    latency = np.full(1000, 1.0)
    latency[::2] = 20.0
    replay = make_replay(latency, rps=10.0, tokens=7)
    rps, tokens, good = achieved(replay, SLO)
    span = float(replay.last_s.max() - replay.sent_s.min())
    assert rps == pytest.approx(1000 / span)
    assert tokens == pytest.approx(7000 / span)
    assert good == pytest.approx(500 / span)


def test_finite() -> None:
    assert finite(float("nan")) is None
    assert finite(float("inf")) is None
    assert finite(1.23456789) == 1.234568
