"""For every fault the client's figures are those of the server's log, or the request is classed right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from loop_lag import differs_by_at_most

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
    Fault.WRONG_COUNT: (Status.WRONG_LENGTH, "more tokens than asked"),
    Fault.SHORT: (Status.WRONG_LENGTH, "fewer tokens than asked"),
    Fault.NO_FINISH: (Status.WRONG_LENGTH, "no finish reason"),
}


def logged(server: MockServer, replay: Replay) -> list[Served]:
    """The server's log in the order of the workload."""
    by_index = {int(served.name.rpartition("-")[2]): served for served in server.log}
    return [by_index[index] for index in range(len(replay))]


def difference(client: np.ndarray, server: list[float]) -> float:
    """The median over the requests."""
    return float(np.median(np.abs(client - np.asarray(server))))


def test_every_fault_is_covered() -> None:
    assert set(ANSWERED) | set(CLASSED) | {Fault.RESET_AT_ONCE} == set(Fault)


@pytest.mark.parametrize("fault", ANSWERED)
def test_figures_equal_the_servers_log(
    fault: Fault, serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.08, tpot_s=0.008), fault=fault)
    step = 4 if fault is Fault.FOUR_A_CHUNK else 1

    def run() -> dict[str, float]:
        server.log.clear()
        replay = replay_http(server.url, "mock", Workload(make_trace(16, rps=40)), options=IDS)
        log = logged(server, replay)
        assert replay.errors == {}
        assert replay.ok.all()
        assert replay.tokens.tolist() == [served.tokens for served in log]
        assert replay.first_tokens.tolist() == [step] * len(replay)
        assert replay.tokens_estimated is (fault is Fault.NO_USAGE)
        tpot = [(s.t_last - s.t_first) / (s.tokens - step) for s in log]
        return {
            "first token": difference(
                replay.first_s - replay.sent_s, [s.t_first - s.t_received for s in log]
            ),
            "last token": difference(replay.last_s - replay.sent_s, [s.t_last - s.t_received for s in log]),
            "time per token x 10": 10 * difference(replay.tpot_s(), tpot),
        }

    differs_by_at_most(TOLERANCE_S, run)


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

    def run() -> dict[str, float]:
        server.log.clear()
        replay = replay_http(server.url, "mock", Workload(make_trace(30, rps=100, output=20)), options=IDS)
        log = logged(server, replay)
        assert replay.ok.all()
        assert server.most_running == 1
        assert replay.ttft_s()[-1] > 0.5
        first = [s.t_first - s.t_received for s in log]
        return {
            "lag": float(np.median(np.abs(replay.lag_s()))),
            "first": difference(replay.first_s - replay.sent_s, first),
        }

    differs_by_at_most(TOLERANCE_S, run)


def test_nothing_is_sent_twice_and_all_at_its_time(
    serve: Callable[..., MockServer], make_trace: Callable[..., Trace]
) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005))

    def run() -> dict[str, float]:
        server.log.clear()
        replay = replay_http(server.url, "mock", Workload(make_trace(200, rps=300, output=2)), options=IDS)
        log = logged(server, replay)
        assert len(server.log) == 200
        assert len({served.name for served in server.log}) == 200
        assert (replay.lag_s() >= -0.001).all()
        received = np.asarray([served.t_received for served in log])
        apart = received - replay.sent_s
        return {"gaps": float(np.median(np.abs(apart - np.median(apart))))}

    differs_by_at_most(TOLERANCE_S, run)
