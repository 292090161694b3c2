"""Causal sessions: a turn waits for the answer before it, over HTTP as in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from causal_checks import assert_causal, in_sessions
from even_traces import even_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.engines.simulated import SimulatedEngine
from tuner.hardware import find_gpu
from tuner.measure import LoadTest
from tuner.models import find_model
from tuner.replay import ClientOptions, Curtailment, Endpoint, MockServer, Status, Workload, replay_http
from tuner.replay.mock import Fault, Timing
from tuner.space import LaunchConfig
from tuner.spec import SessionMode, Slo
from tuner.traces import Trace, shipped_trace
from tuner.traces.causal import RECORDED_TOKEN_S, turns_of

PLAIN = ClientOptions(endpoint=Endpoint.COMPLETIONS)
Serve = Callable[..., MockServer]
MakeTrace = Callable[..., Trace]


@pytest.fixture(scope="module")
def simulated() -> Callable[[Workload, Curtailment | None], object]:
    shape = find_model("kimi-k2.6-awq")
    return SimulatedEngine(find_gpu("A100-80G"), shape, "0.21.0").launch(LaunchConfig(), Path()).replay


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
@settings(max_examples=40, deadline=None)
def test_turns_follow_each_other(sessions: list[int]) -> None:
    trace = replace(even_trace(len(sessions), rps=0.8), session=np.asarray(sessions))
    turns = turns_of(trace)
    followed = [turn for turn in turns.next if turn >= 0]
    assert sorted(followed + turns.opening) == list(range(len(sessions)))
    for index, turn in enumerate(turns.next):
        if turn >= 0:
            assert turn > index and sessions[turn] == sessions[index]
            assert sessions[index] not in sessions[index + 1 : turn]
            gap = trace.arrival_s[turn] - trace.arrival_s[index]
            thought = gap - RECORDED_TOKEN_S * trace.output_tokens[index]
            assert turns.think_s[turn] == pytest.approx(max(0.0, thought))


@pytest.mark.parametrize("processes", [1, 2])
def test_turns_wait_for_answers(serve: Serve, make_trace: MakeTrace, processes: int) -> None:
    server = serve(Timing(ttft_s=0.15, tpot_s=0.002))
    trace = in_sessions(make_trace(40, rps=80.0, output=6), 4)
    options = replace(PLAIN, processes=processes)
    replay = replay_http(server.url, "mock", Workload(trace, causal=True), options=options)
    assert replay.ok.all()
    assert assert_causal(trace, replay, to_s=1e-6) == 30
    # from when it was due, not from when the trace had it: the last turns are far behind that
    assert np.median(replay.e2e_s()) < 0.75 * np.median((replay.last_s - trace.arrival_s)[30:])
    assert len(server.log) == 40


def test_quick_answers_hold_nothing_up(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001))
    trace = in_sessions(make_trace(40, rps=80.0, output=8), 4)
    replay = replay_http(server.url, "mock", Workload(trace, causal=True), options=PLAIN)
    assert replay.scheduled_s == pytest.approx(trace.arrival_s, abs=1e-9)
    assert assert_causal(trace, replay) == 0


def test_a_failed_answer_lets_the_next_turn_come(serve: Serve, make_trace: MakeTrace) -> None:
    one_in_twelve = {2: Fault.ERROR_EVENT}
    server = serve(Timing(ttft_s=0.05), fault=lambda number: one_in_twelve.get(number, Fault.NONE))
    trace = in_sessions(make_trace(12, rps=60.0, output=16), 4)
    replay = replay_http(server.url, "mock", Workload(trace, causal=True), options=PLAIN)
    assert np.count_nonzero(replay.ok) == 11
    assert not np.isnan(replay.sent_s).any()
    assert (replay.scheduled_s >= trace.arrival_s - 1e-9).all()


def test_a_certain_verdict_ends_it(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.2))
    trace = in_sessions(make_trace(60, rps=100.0, output=4), 20)
    stop = Curtailment.at({"e2e": 0.05}, 60)
    replay = replay_http(server.url, "mock", Workload(trace, causal=True), options=PLAIN, stop=stop)
    assert replay.stopped and np.isnan(replay.sent_s).any()
    assert (replay.status[np.isnan(replay.sent_s)] == Status.UNFINISHED).all()


def test_the_simulator_agrees(simulated: Callable[..., object]) -> None:
    trace = LoadTest(shipped_trace(), Slo(e2e_p99_s=30.0), requests=600).loads.at(8.0)
    replay = simulated(Workload(trace, causal=True), None)
    assert replay.ok.all()
    assert assert_causal(trace, replay) > 20
    recorded = simulated(Workload(trace), None)
    assert np.array_equal(recorded.scheduled_s, trace.arrival_s)
    # who waits for answers offers less at once
    assert replay.counters["mean_running"] < recorded.counters["mean_running"]


def test_without_turns_the_simulator_gives_the_same(simulated: Callable[..., object]) -> None:
    trace = replace(shipped_trace().take(np.arange(200)), session=np.arange(200))
    one, other = simulated(Workload(trace, causal=True), None), simulated(Workload(trace), None)
    assert np.array_equal(one.last_s, other.last_s) and np.array_equal(one.first_s, other.first_s)


def test_the_simulator_stops_only_what_cannot_pass(simulated: Callable[..., object]) -> None:
    slo = Slo(e2e_p99_s=10.0)
    test = LoadTest(shipped_trace(), slo, requests=400, sessions=SessionMode.CAUSAL)
    for rps in (2.0, 5.0, 9.0, 14.0):
        stopped, full = (test.at(simulated, rps, curtail=curtail) for curtail in (True, False))
        assert stopped.passes == full.passes
        if not stopped.replay.stopped:
            assert np.array_equal(stopped.replay.last_s, full.replay.last_s)


def test_requests_over_the_length_are_passed_over(simulated: Callable[..., object]) -> None:
    trace = in_sessions(shipped_trace().take(np.arange(60)), 6)
    inputs = trace.input_tokens.copy()
    inputs[20:25] = 2_000_000
    trace = replace(trace, input_tokens=inputs, block_offsets=np.zeros(61, np.int64), block_tokens=0)
    trace = replace(trace, block_ids=np.empty(0, np.int64))
    replay = simulated(Workload(trace, causal=True), None)
    assert np.flatnonzero(~replay.ok).tolist() == list(range(20, 25))
    assert (replay.status[20:25] == Status.REJECTED).all()
