"""Several client processes record what one does: the same requests, on one clock, to the same verdict."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import EngineUnavailable
from tuner.replay import ClientOptions, Curtailment, Endpoint, MockServer, Status, Workload, replay_http
from tuner.replay.mock import Fault, Timing
from tuner.replay.plan import plan_clients, shards
from tuner.traces.trace import Trace

TWO = ClientOptions(endpoint=Endpoint.COMPLETIONS, processes=2)
Serve = Callable[..., MockServer]
MakeTrace = Callable[..., Trace]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_two_processes_send_what_one_sends(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.05, tpot_s=0.002), keep_prompts=True)
    trace = make_trace(60, prompt=40, blocks=[[i % 7, 100 + i % 5] for i in range(60)], block_tokens=16)
    trace = replace(trace, session=np.arange(60) // 3)
    before = children()
    records = {}
    for processes in (1, 2):
        server.log.clear()
        options = replace(TWO, processes=processes)
        seen: list[tuple[int, int]] = []
        replay = replay_http(
            server.url,
            "mock",
            Workload(trace),
            options=options,
            seed=4,
            progress=lambda done, planned, seen=seen: seen.append((done, planned)),
        )
        assert replay.ok.all() and replay.errors == {}
        assert replay.counters["client_processes"] == processes
        assert seen[-1] == (60, 60)
        log = {int(served.name.rpartition("-")[2]): served for served in server.log}
        assert len(server.log) == len(log) == 60
        records[processes] = [log[index].prompt for index in range(60)]
        received = np.asarray([log[index].t_received for index in range(60)])
        # one clock: when the server got them goes with when the record says that they were sent
        apart = received - replay.sent_s
        assert np.median(np.abs(apart - np.median(apart))) < 0.005
        truth = np.asarray([log[index].t_first - log[index].t_received for index in range(60)])
        assert np.median(np.abs(replay.first_s - replay.sent_s - truth)) < 0.02
        names = {served.name.rpartition("-")[0] for served in server.log}
        assert len(names) == processes
    assert records[1] == records[2]
    assert children() == before, "a client process was left behind"


def test_a_verdict_ends_all_of_them(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001), fault=lambda n: Fault.STALL if n >= 40 else Fault.NONE)
    workload = Workload(make_trace(100, rps=100, output=12))
    stop = Curtailment.at({"e2e": 0.5, "ttft": 0.4}, 100)
    replay = replay_http(server.url, "mock", workload, options=TWO, stop=stop)
    assert replay.stopped
    assert (replay.status == Status.UNFINISHED).any()
    assert 0 < replay.ok.sum() <= 40
    # the first token of a request that never ended is in the record all the same
    assert np.isfinite(replay.first_s[~replay.ok]).any()
    well = serve(Timing(ttft_s=0.01, tpot_s=0.001))
    full = replay_http(well.url, "mock", Workload(make_trace(20)), options=TWO, stop=Curtailment.at({}, 20))
    assert not full.stopped


def test_what_fails_in_a_process_is_said(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001), fault=Fault.STALL)
    with pytest.raises(EngineUnavailable, match="connection refused"):
        replay_http("http://127.0.0.1:1", "mock", Workload(make_trace(4)), options=TWO)
    before = children()

    def kill(done: int, planned: int) -> None:
        for pid in children() - before:
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(EngineUnavailable, match="client process is gone"):
        replay_http(server.url, "mock", Workload(make_trace(6)), options=TWO, progress=kill)

    def leave(done: int, planned: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replay_http(server.url, "mock", Workload(make_trace(6)), options=TWO, progress=leave)
    assert children() == before


def test_the_key_is_in_no_command_line(
    serve: Serve, make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = serve(Timing(ttft_s=0.3, tpot_s=0.001), key="sk-secret")
    lines: list[str] = []

    def look(done: int, planned: int) -> None:
        for pid in children():
            lines.append(Path(f"/proc/{pid}/cmdline").read_text())

    replay = replay_http(server.url, "mock", Workload(make_trace(6)), options=TWO, progress=look)
    assert replay.ok.all()
    assert any("tuner.replay.shard" in line for line in lines)
    assert not any("sk-secret" in line for line in lines)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(1, 6), st.integers(0, 99))
def test_shards_are_whole_sessions_and_everything(sessions: list[int], processes: int, seed: int) -> None:
    n = len(sessions)
    rng = np.random.default_rng(seed)
    from even_traces import even_trace

    trace = replace(
        even_trace(n),
        session=np.asarray(sessions, np.int64),
        output_tokens=rng.integers(1, 2000, n).astype(np.int32),
    )
    parts = shards(Workload(trace), processes)
    assert len(parts) == processes
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    owners = [{sessions[index] for index in part.tolist()} for part in parts]
    assert sum(map(len, owners)) == len(set(sessions))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_the_plan_follows_the_load(make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))

    def plan(rps: float, output: int, **options: int | None) -> tuple[int, bool]:
        made = plan_clients(Workload(make_trace(int(20 * rps), rps=rps, output=output)), **options)
        return made.processes, made.short

    assert plan(10, 100) == (1, False)
    assert plan(400, 32) == (1, False)
    assert plan(400, 200)[0] > 3
    assert plan(2000, 32)[0] > plan(1000, 32)[0] > 1
    assert plan(10, 100, wanted=3) == (3, False)
    assert plan_clients(Workload(make_trace(2), users=1000), 4).processes == 1
    assert plan_clients(Workload(make_trace(2)), 4).processes == 2, "a session is not cut in two"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert plan(2000, 100) == (1, True)
    assert "more than this machine has" in str(plan_clients(Workload(make_trace(20000, rps=2000, output=99))))
