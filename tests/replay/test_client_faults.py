"""For every fault the client's figures are those of the server's log, or the request is classed right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tuner.replay import ClientOptions, Endpoint, MockServer, Replay, Status, Workload, replay_http
from tuner.replay.mock import Fault, Served, Timing
from tuner.traces.trace import Trace

IDS = ClientOptions(endpoint=Endpoint.COMPLETIONS)
TOLERANCE_S = 0.005
ANSWERED = [
    Fault.NONE,
    Fault.ROLE_FIRST,
    Fault.REASONING,
    Fault.FOUR_A_CHUNK,
    Fault.NO_USAGE,
    Fault.SPLIT_UTF8,
    Fault.CRLF,
    Fault.SLOW_HEADERS,
    Fault.COMMENTS,
    Fault.CLOSES_SILENTLY,
]
CLASSED = {
    Fault.ERROR_EVENT: (Status.STREAM_ERROR, "the engine failed"),
    Fault.RESET: (Status.CONNECTION, "connection"),
    Fault.STALL: (Status.STALLED, "no byte for 0.4 s"),
    Fault.TOO_MANY_REQUESTS: (Status.HTTP_ERROR, "HTTP 429: refused with 429"),
    Fault.UNAVAILABLE: (Status.HTTP_ERROR, "HTTP 503: refused with 503"),
    Fault.BAD_REQUEST: (Status.REJECTED, "HTTP 400: refused with 400"),
    Fault.SHORT: (Status.WRONG_LENGTH, "fewer tokens than asked"),
    Fault.NO_FINISH: (Status.WRONG_LENGTH, "no finish reason"),
}


def logged(server: MockServer, replay: Replay) -> list[Served]:
    """The server's log in the order of the workload."""
    by_index = {int(served.name.rpartition("-")[2]): served for served in server.log}
    return [by_index[index] for index in range(len(replay))]


def difference(client: np.ndarray, server: list[float]) -> float:
    """The least difference of all requests: what is wrong by design is wrong in each of them, and on a busy
    machine most of them wait for a CPU on one side or the other.
    """
    return float(np.min(np.abs(client - np.asarray(server))))


def test_every_fault_is_covered() -> None:
    assert set(ANSWERED) | set(CLASSED) | {Fault.RESET_AT_ONCE} == set(Fault)


@pytest.mark.parametrize("fault", ANSWERED)
def test_figures_equal_the_servers_log(
    fault: Fault, serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.08, tpot_s=0.008), fault=fault)
    replay = replay_http(server.url, "mock", Workload(make_trace(16, rps=80)), options=IDS)
    log = logged(server, replay)
    assert replay.errors == {}
    assert replay.ok.all()
    assert replay.tokens.tolist() == [served.tokens for served in log]
    first = replay.first_s - replay.sent_s
    last = replay.last_s - replay.sent_s
    assert difference(first, [s.t_first - s.t_received for s in log]) < TOLERANCE_S
    assert difference(last, [s.t_last - s.t_received for s in log]) < TOLERANCE_S
    step = 4 if fault is Fault.FOUR_A_CHUNK else 1
    assert replay.first_tokens.tolist() == [step] * len(replay)
    tpot = [(s.t_last - s.t_first) / (s.tokens - step) for s in log]
    assert difference(replay.tpot_s(), tpot) < TOLERANCE_S / 10
    assert replay.tokens_estimated is (fault is Fault.NO_USAGE)


@pytest.mark.parametrize("fault", list(CLASSED))
def test_failures_are_classed(
    fault: Fault, serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.02, tpot_s=0.002), fault=lambda n: fault if n % 2 else Fault.NONE)
    options = ClientOptions(endpoint=Endpoint.COMPLETIONS, stall_s=0.4)
    replay = replay_http(server.url, "mock", Workload(make_trace(20, rps=80, output=14)), options=options)
    status, text = CLASSED[fault]
    assert set(replay.status.tolist()) == {Status.OK, status}
    assert replay.ok.sum() == 10
    assert sum(replay.errors.values()) == 10
    assert all(error.startswith(text) for error in replay.errors)
    assert np.isinf(replay.e2e_s()[~replay.ok]).all()


def test_a_reset_without_an_answer_is_tried_once_more_and_no_oftener(
    serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.02, tpot_s=0.002), fault=Fault.RESET_AT_ONCE)
    replay = replay_http(server.url, "mock", Workload(make_trace(10, rps=80)), options=IDS)
    assert (replay.status == Status.CONNECTION).all()
    assert sum(replay.errors.values()) == 10
    assert all(error.startswith("connection") for error in replay.errors)
    assert 10 <= len(server.log) <= 20


def test_a_closed_idle_connection_is_no_error(
    serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005), keep_alive_s=0.05)
    replay = replay_http(server.url, "mock", Workload(make_trace(16, rps=14.0, output=2)), options=IDS)
    assert replay.errors == {}
    assert replay.ok.all()
    assert len(server.log) == len(replay)


def test_latency_counts_from_the_schedule_when_the_server_queues(
    serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.02, tpot_s=0.001, slots=1))
    replay = replay_http(server.url, "mock", Workload(make_trace(30, rps=100, output=20)), options=IDS)
    log = logged(server, replay)
    assert replay.ok.all()
    assert server.most_running == 1
    assert float(np.percentile(np.abs(replay.lag_s()), 50)) < 0.02
    assert replay.ttft_s()[-1] > 0.5
    assert difference(replay.first_s - replay.sent_s, [s.t_first - s.t_received for s in log]) < TOLERANCE_S


def test_nothing_is_sent_twice_and_all_at_its_time(
    serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005))
    replay = replay_http(server.url, "mock", Workload(make_trace(200, rps=300, output=2)), options=IDS)
    log = logged(server, replay)
    assert len(server.log) == 200
    assert len({served.name for served in server.log}) == 200
    received = np.asarray([served.t_received for served in log])
    assert (replay.lag_s() >= -0.001).all()
    assert np.median(np.abs(np.diff(received) - np.diff(replay.sent_s))) < TOLERANCE_S
