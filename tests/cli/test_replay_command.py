"""`replay` beyond its figures: warm-up, fresh prompts, the server's own account, client processes."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tuner.replay import ClientOptions, Endpoint, MockServer, Workload, replay_http
from tuner.replay.mock import Fault, Timing
from tuner.traces import Trace, TraceSource, write_trace

N = 60


def made_trace(gap_s: float = 0.01) -> Trace:
    """60 requests in 0.6 s, 20 to 79 tokens in and 5 out."""
    return Trace(
        arrival_s=np.arange(N) * gap_s,
        input_tokens=np.arange(20, 20 + N).astype(np.int32),
        output_tokens=np.full(N, 5, np.int32),
        session=np.arange(N) // 2,
        block_offsets=np.zeros(N + 1, np.int64),
        block_ids=np.empty(0, np.int64),
        block_tokens=0,
        source=TraceSource("made"),
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    write_trace(made_trace(), path)
    return path


def test_every_length_class_is_warmed_up_outside_the_window(kimi_tune, trace: Path) -> None:
    with MockServer(Timing(0.01, 0.001), keep_prompts=True) as server:
        ran = kimi_tune("replay", "--url", server.url, "--trace", trace, "--json")
        warm, measured = server.log[:8], server.log[8:]
        again = kimi_tune("replay", "--url", server.url, "--trace", trace, "--json")
    assert ran.json["requests"] == len(measured) == N
    lengths = sorted(served.prompt_tokens for served in warm)
    assert (lengths[0], lengths[-1]) == (20, 79) and len(set(lengths)) == 8
    assert max(served.t_first for served in warm) < min(served.t_received for served in measured)
    assert again.json["requests"] == N
    # nothing that one replay left in a prefix cache helps the warm-up, the next replay, or the next command
    beginnings = [tuple(served.prompt[:4]) for served in server.log]
    assert len(set(beginnings)) == len(server.log) == 2 * (N + 8)


def test_the_servers_account_stands_beside_the_clients(kimi_tune, trace: Path) -> None:
    with MockServer(Timing(0.01, 0.001)) as server:
        argv = ("replay", "--url", server.url, "--trace", trace)
        account = kimi_tune(*argv, "--json").json["server"]
        assert account == {
            "requests": N, "generation_tokens": 5 * N, "prompt_tokens": sum(range(20, 80)), "mismatch": None
        }  # fmt: skip
        assert f"server counted {N} requests, {5 * N} output tokens" in kimi_tune(*argv).out
        # somebody else on the same server
        options = ClientOptions(endpoint=Endpoint.COMPLETIONS, counters=False)
        other = threading.Thread(
            target=lambda: replay_http(server.url, "mock", Workload(made_trace(0.06)), options=options)
        )
        other.start()
        ran = kimi_tune(*argv)
        other.join()
    assert ran.code == 0
    assert "the client 60 of 60: does somebody else use it?" in ran.out


def test_an_answer_without_usage_is_told_from_the_servers_tokens(kimi_tune, trace: Path) -> None:
    with MockServer(Timing(0.01, 0.001), fault=Fault.NO_USAGE) as server:
        figures = kimi_tune("replay", "--url", server.url, "--trace", trace, "--json").json
    assert figures["tokens_estimated"] is True and figures["failed"] == 0
    assert figures["server"]["mismatch"] is None, "one token a chunk is what this server sends"


def test_several_processes_send_it_where_asked(kimi_tune, trace: Path) -> None:
    with MockServer(Timing(0.01, 0.001)) as server:
        argv = ("replay", "--url", server.url, "--trace", trace, "--json", "--client-processes")
        ran = kimi_tune(*argv, "2")
        assert ran.json["requests"] == N and ran.json["failed"] == 0
        assert ran.json["counters"]["client_processes"] == 2
        assert "2 client processes" in ran.err
        assert kimi_tune(*argv, "auto").json["counters"]["client_processes"] == 1
        for wrong in ("0", "many", "-3", "1000"):
            refused = kimi_tune(*argv, wrong)
            assert refused.code == 2 and "--client-processes" in refused.err
        assert kimi_tune(*argv, "2", "--load", "users").code == 2
