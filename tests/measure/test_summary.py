"""The object that `replay --json` prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from queues import SlotServer, poisson_trace

from tuner.measure import achieved, finite, judge, summarize
from tuner.replay import Replay, Status, Workload
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
    rps, tokens, good = achieved(make_replay(latency, rps=10.0, tokens=7), SLO)
    assert rps == pytest.approx(10.0, rel=0.01)
    assert tokens == pytest.approx(70.0, rel=0.01)
    assert good == pytest.approx(5.0, rel=0.01)


def test_failures_are_not_achieved(make_replay: Callable[..., Replay]) -> None:
    replay = make_replay(np.full(1000, 1.0), rps=10.0, failed=range(0, 1000, 4))
    assert achieved(replay)[0] == pytest.approx(7.5, rel=0.01)


@pytest.mark.parametrize("share", [0.5, 0.8, 1.1, 1.3, 1.6])
def test_an_open_loop_achieves_what_is_offered_and_at_most_what_is_carried(share: float) -> None:
    server = SlotServer(64)
    offered = share * server.saturation_rps()
    replay = server.send(Workload(poisson_trace(offered, 6000, 1)))
    assert achieved(replay)[0] == pytest.approx(min(offered, server.saturation_rps()), rel=0.04)
    whole = len(replay) / float(replay.last_s.max())
    assert share >= 1 or achieved(replay)[0] > whole, "the drain is left out"


def test_a_burst_sent_at_once_is_its_requests_by_its_makespan() -> None:
    trace = replace(poisson_trace(1.0, 300, 2), arrival_s=np.zeros(300))
    replay = SlotServer(16).send(Workload(trace))
    assert achieved(replay)[0] == pytest.approx(300 / float(replay.last_s.max()))
    assert achieved(replay)[1] == pytest.approx(trace.output_tokens.sum() / float(replay.last_s.max()))


def test_a_closed_loop_is_counted_from_first_send_to_last_answer(make_replay: Callable[..., Replay]) -> None:
    replay = make_replay(np.full(100, 2.0), rps=10.0, users=20)
    span = float(replay.last_s.max() - replay.sent_s.min())
    assert achieved(replay)[0] == pytest.approx(100 / span)


def test_a_replay_stopped_early_is_counted_to_where_it_was(make_replay: Callable[..., Replay]) -> None:
    replay = make_replay(np.full(1000, 1.0), rps=10.0, stopped=True)
    unsent = np.arange(1000) >= 400
    status = np.where(unsent, Status.UNFINISHED, replay.status).astype(np.int8)
    cut = {name: np.where(unsent, np.nan, getattr(replay, name)) for name in ("sent_s", "first_s", "last_s")}
    assert achieved(replace(replay, status=status, **cut))[0] == pytest.approx(10.0, rel=0.02)


def test_finite() -> None:
    assert finite(float("nan")) is None
    assert finite(float("inf")) is None
    assert finite(1.23456789) == 1.234568
