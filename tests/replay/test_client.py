"""The client as its callers see it: loops, curtailment, endpoints, keys, refusals, interruption."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.errors import BadRequest, EngineUnavailable
from tuner.replay import (
    ClientOptions,
    Curtailment,
    Endpoint,
    MockServer,
    Status,
    Workload,
    check_server,
    choose_model,
    replay_http,
)
from tuner.replay.lag import lag_fault, lag_limit_s
from tuner.replay.mock import Fault, Timing
from tuner.replay.preflight import ensure_capacity
from tuner.replay.server import BaseUrl, ServerInfo
from tuner.traces.trace import Trace

ROOT = Path(__file__).parents[2]
IDS = ClientOptions(endpoint=Endpoint.COMPLETIONS)
Serve = Callable[..., MockServer]
MakeTrace = Callable[..., Trace]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "KIMI_TUNE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("users", [1, 3, 10])
def test_a_closed_loop_keeps_exactly_so_many_under_way(
    users: int, serve: Serve, make_trace: MakeTrace
) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.002))
    seen: list[tuple[int, int]] = []
    workload = Workload(make_trace(8 * users + 1, output=4), users=users)
    replay = replay_http(
        server.url, "mock", workload, options=IDS, progress=lambda done, planned: seen.append((done, planned))
    )
    assert replay.ok.all()
    assert server.most_running == users
    assert replay.users == users
    assert replay.offered_rps == 0.0
    ends = np.sort(replay.last_s)
    starts = np.sort(replay.sent_s)
    # the k-th request after the first round waits for the end of the k-th
    assert (starts[users:] >= ends[: len(ends) - users] - 1e-6).all()
    assert seen[-1] == (len(replay), len(replay))
    assert (np.median(starts[users:] - ends[: len(ends) - users])) < 0.01


def test_users_beyond_the_requests(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001))
    assert replay_http(server.url, "mock", Workload(make_trace(3), users=50), options=IDS).ok.all()


def test_a_curtailed_replay_stops_early_and_says_the_same(serve: Serve, make_trace: MakeTrace) -> None:
    timing = Timing(ttft_s=0.02, tpot_s=0.001, slots=1)
    workload = Workload(make_trace(100, rps=100, output=10))
    stop = Curtailment.at({"e2e": 0.3}, 100)
    full = replay_http(serve(timing).url, "mock", workload, options=IDS)
    server = serve(timing)
    curtailed = replay_http(server.url, "mock", workload, options=IDS, stop=stop)
    assert int((full.e2e_s() > 0.3).sum()) > stop.max_over
    assert curtailed.stopped
    assert not full.stopped
    assert curtailed.engine_s < full.engine_s / 2
    assert (curtailed.status == Status.UNFINISHED).any()
    assert len(curtailed) == 100
    over = curtailed.ok & (curtailed.e2e_s() > 0.3) | ~curtailed.ok
    assert over.sum() > stop.max_over
    deadline = time.monotonic() + 5
    while server.running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.running == 0, "requests went on after the replay had stopped"


def test_a_passing_replay_is_not_curtailed(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001))
    replay = replay_http(
        server.url, "mock", Workload(make_trace(30)), options=IDS, stop=Curtailment.at({"e2e": 5.0}, 30)
    )
    assert not replay.stopped
    assert replay.ok.all()


def test_stalled_requests_are_curtailed_while_they_hang(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001), fault=Fault.STALL)
    replay = replay_http(
        server.url, "mock", Workload(make_trace(5)), options=IDS, stop=Curtailment.at({"e2e": 0.4}, 5)
    )
    assert replay.stopped
    assert (replay.status == Status.UNFINISHED).all()


def test_a_server_that_takes_no_ids_is_asked_by_chat(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001), text_only=True, tokens_a_word=1.5)
    replay = replay_http(server.url, "mock", Workload(make_trace(10, prompt=200)))
    assert replay.ok.all()
    assert replay.invalid_reason is None
    assert {served.path for served in server.log} == {"/v1/chat/completions"}
    assert all(abs(served.prompt_tokens - 200) <= 2 for served in server.log)


def test_ids_arrive_exactly(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.01, tpot_s=0.001), keep_prompts=True)
    trace = make_trace(4, prompt=40, blocks=[[1, 2], [1, 3], [1, 2], []], block_tokens=16)
    replay = replay_http(server.url, "mock", Workload(trace))
    prompts = [s.prompt for s in sorted(server.log, key=lambda s: int(s.name.rpartition("-")[2]))]
    assert replay.counters["usage_prompt_tokens"] == 160
    assert [len(prompt) for prompt in prompts] == [40] * 4
    assert prompts[0][:32] == prompts[2][:32]
    assert prompts[0][:16] == prompts[1][:16] != prompts[3][:16]


def test_prompts_that_the_server_counts_otherwise_make_it_invalid(
    serve: Serve, make_trace: MakeTrace
) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.001), text_only=True)
    trace = make_trace(5, prompt=300)
    wrong = replace(trace, input_tokens=np.full(5, 3, np.int32))
    replay = replay_http(server.url, "mock", Workload(wrong), options=ClientOptions(endpoint=Endpoint.CHAT))
    assert replay.invalid_reason is not None
    assert "prompt tokens where the trace has 15" in replay.invalid_reason


def test_counters_are_those_of_the_replay_alone(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005))
    for _ in range(2):
        replay = replay_http(server.url, "mock", Workload(make_trace(5, rps=100)), options=IDS)
        assert replay.counters["server_generation_tokens"] == 80
        assert replay.counters["server_prompt_tokens"] == replay.counters["usage_prompt_tokens"] == 160


def test_requests_over_the_model_length_are_rejected(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005), max_model_len=40)
    replay = replay_http(server.url, "mock", Workload(make_trace(3)), options=IDS)
    assert (replay.status == Status.REJECTED).all()
    assert replay.errors == {"HTTP 400: maximum context length is 40 tokens": 3}


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "KIMI_TUNE_API_KEY"])
def test_the_key_is_sent_and_appears_nowhere(
    name: str,
    serve: Serve,
    make_trace: MakeTrace,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005), key="sk-secret")
    with pytest.raises(BadRequest, match="OPENAI_API_KEY"):
        check_server(server.url)
    refused = replay_http(server.url, "mock", Workload(make_trace(2)), options=IDS)
    assert (refused.status == Status.REJECTED).all()
    monkeypatch.setenv(name, "sk-secret")
    assert check_server(server.url).models == ("mock",)
    replay = replay_http(server.url, "mock", Workload(make_trace(2)))
    assert replay.ok.all()
    assert "sk-secret" not in repr(replay) + "".join(capfd.readouterr())


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
def test_the_url_may_end_with_v1(tail: str, serve: Serve) -> None:
    assert check_server(serve().url + tail).models == ("mock",)


def test_what_is_wrong_with_a_server_is_said(serve: Serve, make_trace: MakeTrace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    nowhere = f"http://127.0.0.1:{free}"
    with pytest.raises(EngineUnavailable, match="nothing listens at"):
        check_server(nowhere)
    with pytest.raises(EngineUnavailable, match="connection refused"):
        replay_http(nowhere, "mock", Workload(make_trace(2)), options=IDS)
    with pytest.raises(BadRequest, match="not the URL of a server"):
        check_server("ftp://x")
    with pytest.raises(BadRequest, match="404"):
        check_server(serve().url + "/nested")
    with pytest.raises(BadRequest, match="does not exist"):
        replay_http(serve().url, "other", Workload(make_trace(2)))


def test_the_model_is_chosen_where_there_is_one() -> None:
    assert choose_model(ServerInfo(("a",)), None, "u") == "a"
    assert choose_model(ServerInfo(("a", "b")), "b", "u") == "b"
    with pytest.raises(BadRequest, match="several models: name one with --model: a, b"):
        choose_model(ServerInfo(("a", "b")), None, "u")
    with pytest.raises(BadRequest, match="does not serve 'c': it serves a"):
        choose_model(ServerInfo(("a",)), "c", "u")


def test_urls() -> None:
    url = BaseUrl.parse("https://user:word@example.org/proxy/v1/?x=1")
    assert (url.host, url.port, url.root, url.secure) == ("example.org", 443, "/proxy", True)
    assert url.shown == "https://example.org/proxy"
    assert BaseUrl.parse("localhost:8000").port == 8000


def test_a_server_that_dies_fails_its_requests(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005))

    def die(done: int, planned: int) -> None:
        if done and done < planned:
            server.stop()

    replay = replay_http(
        server.url, "mock", Workload(make_trace(60, rps=60, output=2)), options=IDS, progress=die
    )
    assert 0 < replay.ok.sum() < 60
    assert (replay.status[~replay.ok] == Status.CONNECTION).all()


def test_an_error_of_the_caller_ends_the_replay_at_once(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.001), fault=Fault.STALL)

    def wrong(done: int, planned: int) -> None:
        raise ZeroDivisionError

    # every request hangs for longer than the test may take
    with pytest.raises(ZeroDivisionError):
        replay_http(server.url, "mock", Workload(make_trace(5)), options=IDS, progress=wrong)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of our own for 127.0.0.1, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


def test_https(
    certificate: Path, serve: Serve, make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = serve(Timing(ttft_s=0.02, tpot_s=0.001), tls=context)
    with pytest.raises(BadRequest, match="TLS failed"):
        check_server(server.url)
    with pytest.raises(EngineUnavailable, match="TLS failed"):
        replay_http(server.url, "mock", Workload(make_trace(2)), options=IDS)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert check_server(server.url).models == ("mock",)
    replay = replay_http(server.url, "mock", Workload(make_trace(20, prompt=9000)), options=IDS)
    assert replay.ok.all()
    assert float(np.median(replay.ttft_s())) < 0.2


def test_without_uvloop(serve: Serve, make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(Timing(ttft_s=0.02, tpot_s=0.002))
    monkeypatch.setitem(sys.modules, "uvloop", None)
    replay = replay_http(server.url, "mock", Workload(make_trace(20, prompt=9000)), options=IDS)
    assert replay.ok.all()
    assert replay.errors == {}


def test_an_empty_trace(make_trace: MakeTrace) -> None:
    assert len(replay_http("http://127.0.0.1:1", "mock", Workload(make_trace(0)))) == 0


def test_a_client_that_fell_behind_is_invalid(serve: Serve, make_trace: MakeTrace) -> None:
    server = serve(Timing(ttft_s=0.001, tpot_s=0.0005))

    def block(done: int, planned: int) -> None:
        time.sleep(0.4)

    replay = replay_http(
        server.url, "mock", Workload(make_trace(60, rps=60, output=2)), options=IDS, progress=block
    )
    assert replay.invalid_reason is not None
    assert "client was the bottleneck" in replay.invalid_reason


def test_lag_limits() -> None:
    assert lag_limit_s(None) == 0.1
    assert lag_limit_s(30.0) == 0.1
    assert lag_limit_s(1.0) == pytest.approx(0.05)
    assert lag_limit_s(0.05) == 0.01
    assert lag_limit_s(None, Curtailment.at({"ttft": 0.6, "e2e": 30.0}, 100)) == pytest.approx(0.03)
    lags = np.concatenate([np.full(99, 0.001), [5.0]])
    assert lag_fault(lags, 0.01) is None
    assert lag_fault(np.concatenate([lags, [5.0, np.nan]]), 0.01) is not None
    assert lag_fault(np.full(3, np.nan), 0.01) is None


def test_too_few_files_are_said_beforehand() -> None:
    with pytest.raises(EngineUnavailable, match="ulimit -Hn|ip_local_port_range"):
        ensure_capacity(10_000_000)
    ensure_capacity(10)


def test_an_interrupt_ends_the_replay_and_its_requests(serve: Serve) -> None:
    server = serve(Timing(ttft_s=0.05, tpot_s=0.05))
    code = (
        "import sys; sys.path.insert(0, 'tests/replay')\n"
        "from even_traces import even_trace\n"
        "from tuner.replay import *\n"
        "options = ClientOptions(endpoint=Endpoint.COMPLETIONS)\n"
        "try:\n"
        "    work = Workload(even_trace(500, rps=20, output=100))\n"
        f"    replay_http('{server.url}', 'mock', work, options=options)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 30
    while server.running < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=20)
    assert out.strip() == "interrupted"
    assert err == ""
    while server.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.running == 0


def test_importing_the_room_is_cheap() -> None:
    code = (
        "import sys, tuner.replay; print(sorted({'asyncio', 'aiohttp', 'uvloop', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
