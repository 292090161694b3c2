"""`record` from the command line: what it refuses, and a trace that `trace inspect` reads."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tuner.cli.record import size_of
from tuner.errors import BadRequest
from tuner.replay import MockServer

ASKED = b'{"model": "mock", "prompt": [1, 2, 3], "max_tokens": 5}'


def test_recorded_until_interrupted_and_inspected(kimi_tune, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def use_it() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", ASKED)
                urllib.request.urlopen(request, timeout=5).read()
                break
            except OSError:
                time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    with MockServer() as server:
        user = threading.Thread(target=use_it)
        user.start()
        ran = kimi_tune("record", "--upstream", server.url, "--out", "t.jsonl", "--port", port)
        user.join()
    assert ran.code == 0, ran.err
    first, last = ran.err.strip().splitlines()
    assert f"127.0.0.1:{port}" in first and last == "1 request recorded in t.jsonl"
    assert ran.out == ""
    assert kimi_tune("trace", "inspect", "t.jsonl", "--json").json["requests"] == 1
    again = kimi_tune("record", "--upstream", server.url, "--out", "t.jsonl")
    assert again.code == 2 and "is there already" in again.err


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("--upstream", "ftp://x", "--out", "t.jsonl"), "URL"),
        (("--upstream", "http://127.0.0.1:1", "--out", "none/t.jsonl"), "none/t.jsonl"),
        (("--upstream", "http://127.0.0.1:1", "--out", "t.jsonl.gz"), ".jsonl"),
        (("--upstream", "http://127.0.0.1:1", "--out", "t.jsonl", "--rotate", "much"), "512MB"),
        (("--upstream", "http://127.0.0.1:1", "--out", "t.jsonl", "--block-tokens", "5"), "block-tokens"),
        (("--out", "t.jsonl"), "--upstream"),
    ],
)
def test_a_wrong_request_is_one_line(kimi_tune, argv: tuple[str, ...], word: str) -> None:
    ran = kimi_tune("record", *argv)
    assert ran.code == 2
    assert len(ran.err.strip().splitlines()) == 1 and word in ran.err
    assert list(Path.cwd().iterdir()) == []


def test_a_port_that_is_taken_leaves_no_file(kimi_tune) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = kimi_tune("record", "--upstream", "http://127.0.0.1:1", "--out", "t.jsonl", "--port", port)
    assert ran.code == 2 and str(port) in ran.err and len(ran.err.strip().splitlines()) == 1
    assert not Path("t.jsonl").exists()


def test_sizes() -> None:
    assert [size_of(t) for t in ("512MB", "1.5 GiB", "10k", "77")] == [512 * 10**6, 15 * 10**8, 10_000, 77]
    for wrong in ("", "0", "-1MB", "1TB", "MB"):
        with pytest.raises(BadRequest):
            size_of(wrong)
