"""The recorder between a client and a server with a known truth."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from recording import recording

from tuner.errors import BadRequest
from tuner.replay import ClientOptions, Endpoint, MockServer, Status, Workload, replay_http
from tuner.replay.mock import Fault, Timing
from tuner.traces import Trace, TraceSource, load_trace
from tuner.traces.recorder import RowFiles
from tuner.traces.sessions import sessions_from_chains

QUICK = Timing(ttft_s=0.01, tpot_s=0.001)
IDS = ClientOptions(endpoint=Endpoint.COMPLETIONS)


def made_trace(n: int = 24, *, gap_s: float = 0.03) -> Trace:
    """Requests of various lengths: a shared start, conversations of three turns that grow, blocks of 16."""
    lists = []
    for i in range(n):
        conversation, turn = divmod(i, 3)
        own = [1000 + 10 * conversation + k for k in range(2 + 2 * turn)]
        lists.append([1, 2, *own, 100_000 + i])
    inputs = np.array([16 * (len(blocks) - 1) + 1 + i % 16 for i, blocks in enumerate(lists)], np.int32)
    made = Trace(
        arrival_s=np.arange(n) * gap_s,
        input_tokens=inputs,
        output_tokens=np.arange(n, dtype=np.int32) % 7 + 1,
        session=np.arange(n),
        block_offsets=np.concatenate([[0], np.cumsum([len(blocks) for blocks in lists])]).astype(np.int64),
        block_ids=np.array([block for blocks in lists for block in blocks], np.int64),
        block_tokens=16,
        source=TraceSource("made"),
    )
    return replace(made, session=sessions_from_chains(made))


def sharing(trace: Trace) -> list[int]:
    """Block ids renumbered by appearance: two traces share alike when these are equal."""
    known: dict[int, int] = {}
    return [known.setdefault(block, len(known)) for block in trace.block_ids.tolist()]


def assert_same(recorded: Trace, trace: Trace) -> None:
    """The same but for time noise and the names of blocks."""
    assert recorded.input_tokens.tolist() == trace.input_tokens.tolist()
    assert recorded.output_tokens.tolist() == trace.output_tokens.tolist()
    assert recorded.block_offsets.tolist() == trace.block_offsets.tolist()
    assert recorded.block_tokens == trace.block_tokens
    assert sharing(recorded) == sharing(trace)
    assert recorded.session.tolist() == trace.session.tolist()
    assert np.median(np.abs(np.diff(recorded.arrival_s) - np.diff(trace.arrival_s))) < 0.02


def rows_of(path: Path) -> list[dict]:
    """The rows behind the header."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()[1:]]


def post(url: str, value: object, *, path: str = "/v1/completions", **headers: str) -> tuple[int, bytes]:
    """A request as any client sends it."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.request("POST", path, json.dumps(value), {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def ask(tokens: int = 4, prompt: object = "one two", **more: object) -> dict:
    return {"model": "mock", "prompt": prompt, "max_tokens": tokens, "stream": True, **more}


def until(true: object, *, within_s: float = 10.0) -> bool:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_record_replay_record_gives_the_same_trace(tmp_path: Path) -> None:
    trace = made_trace()
    with MockServer(QUICK) as server:
        for name in ("first", "second"):
            with recording(server.url, tmp_path / f"{name}.jsonl") as recorder:
                replay = replay_http(recorder.url, "mock", Workload(trace), options=IDS)
            assert replay.ok.all(), replay.errors
            recorded = load_trace(tmp_path / f"{name}.jsonl")
            assert recorded.source.prefix_reuse
            assert_same(recorded, trace)
            trace = recorded


def test_a_salt_makes_files_agree_and_without_one_they_share_nothing(tmp_path: Path) -> None:
    ids = {}
    with MockServer(QUICK) as server:
        for name, salt in (("a", "s"), ("b", "s"), ("c", None), ("d", None)):
            with recording(server.url, tmp_path / name, salt=salt) as recorder:
                post(recorder.url, ask(prompt=list(range(100))))
            (row,) = rows_of(tmp_path / name)
            assert row["input_length"] == 100 and len(row["hash_ids"]) == 7
            ids[name] = set(row["hash_ids"])
    assert ids["a"] == ids["b"]
    assert not ids["a"] & ids["c"] and not ids["c"] & ids["d"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault.NONE, Fault.ROLE_FIRST, Fault.REASONING, Fault.FOUR_A_CHUNK, Fault.NO_USAGE, Fault.SPLIT_UTF8,
        Fault.CRLF, Fault.SLOW_HEADERS, Fault.COMMENTS, Fault.ERROR_EVENT, Fault.NO_FINISH,
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_streams_are_byte_identical_and_lengths_exact(fault: Fault, path: str, tmp_path: Path) -> None:
    asked = ask(12)
    if "chat" in path:
        asked = {**asked, "messages": [{"role": "user", "content": "one two three"}]}
    with MockServer(QUICK, fault=fault) as server:
        direct = post(server.url, asked, path=path)
        with recording(server.url, tmp_path / "t.jsonl") as recorder:
            through = post(recorder.url, asked, path=path)
    assert through == direct
    (row,) = rows_of(tmp_path / "t.jsonl")
    if fault is Fault.ERROR_EVENT:
        assert row["error"] == "an error in the answer"
        return
    assert row["output_length"] == 12
    assert ("estimated" in row) is (fault is Fault.NO_USAGE)
    if fault is not Fault.NO_USAGE:
        assert row["input_length"] == server.log[-1].prompt_tokens
    assert len(row["hash_ids"]) == -(-row["input_length"] // 16)


def test_plain_answers_other_paths_and_methods_pass_too(tmp_path: Path) -> None:
    with MockServer(QUICK) as server, recording(server.url + "/v1", tmp_path / "t.jsonl") as recorder:
        status, body = post(recorder.url, ask(3, stream=False))
        assert status == 200 and orjson.loads(body)["usage"]["completion_tokens"] == 3
        for method, path, wanted in (
            ("GET", "/v1/models", 200),
            ("GET", "/metrics", 200),
            ("GET", "/health?x=%2F", 404),
            ("DELETE", "/v1/else", 404),
            ("PUT", "/v1/else", 404),
        ):
            connection = http.client.HTTPConnection(f"127.0.0.1:{recorder.port}", timeout=20)
            connection.request(method, path, b"x" * 100_000 if method == "PUT" else None)
            assert connection.getresponse().status == wanted, path
    (row,) = rows_of(tmp_path / "t.jsonl")
    assert (row["output_length"], "estimated" in row) == (3, False)


def test_refused_requests_are_failed_rows_that_the_reader_leaves_out(tmp_path: Path) -> None:
    faults = [Fault.TOO_MANY_REQUESTS, Fault.UNAVAILABLE, Fault.BAD_REQUEST, Fault.NONE]
    with (
        MockServer(QUICK, fault=lambda number: faults[number]) as server,
        recording(server.url, tmp_path / "t.jsonl") as recorder,
    ):
        statuses = [post(recorder.url, ask())[0] for _ in faults]
    assert statuses == [429, 503, 400, 200]
    trace = load_trace(tmp_path / "t.jsonl")
    assert len(trace) == 1
    assert trace.source.left_out == {"failed": 3}


def test_an_upstream_that_is_down_is_a_502_with_a_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with recording(f"http://127.0.0.1:{free}", tmp_path / "t.jsonl") as recorder:
        for _ in range(2):
            status, body = post(recorder.url, ask())
            assert status == 502
            assert f"127.0.0.1:{free}" in orjson.loads(body)["error"]["message"]
        with MockServer(QUICK, port=free):
            assert post(recorder.url, ask())[0] == 200
    rows = rows_of(tmp_path / "t.jsonl")
    assert ["error" in row for row in rows] == [True, True, False]


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.RESET_AT_ONCE])
def test_an_upstream_that_breaks_off_is_seen_by_the_client(fault: Fault, tmp_path: Path) -> None:
    with MockServer(QUICK, fault=fault) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        if fault is Fault.RESET:
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                post(recorder.url, ask(30))
        else:
            assert post(recorder.url, ask(30))[0] == 502
    (row,) = rows_of(tmp_path / "t.jsonl")
    assert "upstream" in row["error"]


def test_a_client_that_goes_takes_its_request_along(tmp_path: Path) -> None:
    with (
        MockServer(Timing(ttft_s=0.01, tpot_s=0.01)) as server,
        recording(server.url, tmp_path / "t.jsonl") as recorder,
    ):
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            body = orjson.dumps(ask(100_000))
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            assert client.recv(10)
            assert server.running == 1
        assert until(lambda: server.running == 0), "the upstream went on for nobody"
        assert post(recorder.url, ask())[0] == 200
    rows = rows_of(tmp_path / "t.jsonl")
    assert rows[0]["error"] == "the client went away"
    assert "error" not in rows[1]


def test_a_connection_that_the_upstream_closed_is_no_error(tmp_path: Path) -> None:
    with (
        MockServer(QUICK, fault=Fault.CLOSES_SILENTLY) as server,
        recording(server.url, tmp_path / "t.jsonl") as recorder,
    ):
        assert [post(recorder.url, ask(2))[0] for _ in range(20)] == [200] * 20


def test_no_text_and_no_key_in_the_file(tmp_path: Path) -> None:
    secret, key = "verysecretwords", "sk-verysecretkey"
    chat = {"model": "mock", "max_tokens": 2, "stream": True, "session_id": f"{secret}-7"}
    chat["messages"] = [{"role": "user", "content": f"{secret} one two"}]
    with MockServer(QUICK, key=key) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        bearer = {"Authorization": f"Bearer {key}"}
        assert post(recorder.url, ask(prompt=secret), **bearer)[0] == 200
        assert post(recorder.url, chat, path="/v1/chat/completions", **bearer)[0] == 200
        assert post(recorder.url, chat, path=f"/v1/chat/completions?k={key}", **bearer)[0] in (200, 404)
        assert post(recorder.url, ask(prompt=secret), Authorization="Bearer sk-wrong")[0] == 401
    written = (tmp_path / "t.jsonl").read_text()
    assert secret not in written and "sk-" not in written
    assert written.count("\n") == 5


def test_text_on_request_is_what_a_replay_sends_again(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "one two three"}]
    with MockServer(QUICK, keep_prompts=True) as server:
        with recording(server.url, tmp_path / "t.jsonl", keep_text=True) as recorder:
            post(recorder.url, ask(prompt="four five"))
            post(recorder.url, {**ask(), "messages": messages}, path="/v1/chat/completions")
        trace = load_trace(tmp_path / "t.jsonl")
        assert trace.bodies == ("four five", messages)
        server.log.clear()
        assert replay_http(server.url, "mock", Workload(trace), options=IDS).ok.all()
        assert [served.prompt for served in server.log] == ["four five", messages]


def test_conversations_and_named_sessions_are_told(tmp_path: Path) -> None:
    turn = [{"role": "user", "content": "hello there"}]
    longer = [*turn, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and now"}]
    with MockServer(QUICK) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        for messages in (turn, longer):
            post(recorder.url, {**ask(), "messages": messages}, path="/v1/chat/completions")
        post(recorder.url, ask(prompt=list(range(64))))
        post(recorder.url, ask(prompt=list(range(99))))
        post(recorder.url, ask(prompt=[5] * 20), **{"X-Session-Id": "mine"})
        post(recorder.url, ask(prompt=[6] * 20, session_id="mine"))
    assert load_trace(tmp_path / "t.jsonl").session.tolist() == [0, 0, 1, 1, 2, 2]


def test_batches_are_a_row_a_prompt(tmp_path: Path) -> None:
    with MockServer(QUICK) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        post(recorder.url, ask(8, prompt=[[1, 2, 3], [4, 5, 6, 7]], stream=False))
    rows = rows_of(tmp_path / "t.jsonl")
    assert [(row["input_length"], row["output_length"]) for row in rows] == [(3, 4), (4, 4)]
    assert all(row["estimated"] == ["output_length"] for row in rows)
    assert any("estimated" in note for note in load_trace(tmp_path / "t.jsonl").source.notes)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"prompt": 5}', b'{"messages": [1]}', b"\xff", b'{"prompt": [1e999]}']
)
def test_what_is_no_request_is_left_to_the_upstream(body: bytes, tmp_path: Path) -> None:
    with MockServer(QUICK) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        answers = []
        for url in (server.url, recorder.url):
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
            connection.request("POST", "/v1/completions", body)
            try:
                answers.append(connection.getresponse().status)
            except ConnectionError:
                answers.append(502)
    assert answers[0] == answers[1]
    (row,) = rows_of(tmp_path / "t.jsonl")
    assert row["error"]


def test_files_rotate_and_each_can_be_read(tmp_path: Path) -> None:
    with (
        MockServer(QUICK) as server,
        recording(server.url, tmp_path / "t.jsonl", rotate_bytes=400) as recorder,
    ):
        for _ in range(12):
            post(recorder.url, ask(2))
    paths = sorted(tmp_path.iterdir())
    assert len(paths) >= 3 and {path.name for path in paths} >= {"t.jsonl", "t.1.jsonl", "t.2.jsonl"}
    assert all(path.stat().st_size <= 400 for path in paths)
    assert sum(len(load_trace(path)) for path in paths) == 12


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("mine")
    with pytest.raises(BadRequest, match="is there already"):
        RowFiles(tmp_path / "t.jsonl", {})
    (tmp_path / "u.1.jsonl").write_text("mine")
    files = RowFiles(tmp_path / "u.jsonl", {"block_size": 16}, rotate_bytes=100)
    for _ in range(3):
        files.write({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [123456789]})
    files.close()
    assert (tmp_path / "u.1.jsonl").read_text() == "mine"
    assert files.lost == 0 and [path.name for path in files.paths] == ["u.jsonl", "u.2.jsonl", "u.3.jsonl"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_stops_no_request(tmp_path: Path) -> None:
    with MockServer(QUICK) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        files = recorder.rows._files
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, files._fd)
        os.close(full)
        assert post(recorder.url, ask())[0] == 200
        assert until(lambda: files.lost == 1)
    assert files.fault


def test_a_killed_recorder_leaves_a_trace_that_loads(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    with MockServer(QUICK) as server:
        command = [sys.executable, "-m", "tuner", "record", "--upstream", server.url, "--out", str(out)]
        killed = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
        assert killed.stderr is not None
        url = killed.stderr.readline().split()[1]
        for _ in range(5):
            post(url, ask(2))
        assert until(lambda: len(rows_of(out)) == 5)
        killed.kill()
        killed.communicate()
    assert len(load_trace(out)) == 5
    cut = out.read_bytes()
    out.write_bytes(cut[: len(cut) - 9])
    assert len(load_trace(out)) == 4


def test_ctrl_c_ends_it_with_one_line(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    with MockServer(Timing(ttft_s=0.01, tpot_s=0.01)) as server:
        command = [sys.executable, "-m", "tuner", "record", "--upstream", server.url, "--out", str(out)]
        running = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None
        url = running.stderr.readline().split()[1]
        post(url, ask(2))
        cut = (http.client.IncompleteRead, ConnectionError)
        hanging = threading.Thread(target=lambda: pytest.raises(cut, post, url, ask(100_000)))
        hanging.start()
        assert until(lambda: server.running == 1)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=20)
        hanging.join(20)
    assert running.returncode == 0
    assert err.strip() == f"2 requests recorded in {out}; 1 of them failed"
    assert len(load_trace(out)) == 1


def test_a_replay_through_it_fails_as_one_without(tmp_path: Path) -> None:
    faults = [Fault.NONE, Fault.ERROR_EVENT, Fault.RESET, Fault.SHORT, Fault.UNAVAILABLE, Fault.BAD_REQUEST]
    trace = replace(made_trace(6), output_tokens=np.full(6, 20, np.int32))
    with (
        MockServer(QUICK, fault=lambda number: faults[number]) as server,
        recording(server.url, tmp_path / "t.jsonl") as recorder,
    ):
        replay = replay_http(recorder.url, "mock", Workload(trace), options=IDS)
    assert [Status(status) for status in replay.status] == [
        Status.OK, Status.STREAM_ERROR, Status.CONNECTION, Status.WRONG_LENGTH, Status.HTTP_ERROR,
        Status.REJECTED,
    ]  # fmt: skip


def test_chunked_requests_and_two_in_one_write(tmp_path: Path) -> None:
    body = orjson.dumps(ask(2, prompt=list(range(40)), stream=False))
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    pieces = (body[:7], body[7:30], body[30:])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    whole = head.encode() + chunks + b"0\r\n\r\n"
    with MockServer(QUICK) as server, recording(server.url, tmp_path / "t.jsonl") as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=10) as client:
            client.sendall(whole + whole)
            seen = b""
            while seen.count(b'"usage"') < 2:
                seen += client.recv(65_536)
    assert seen.count(b"HTTP/1.1 200") == 2 and seen.count(b"HTTP/1.1 100") == 2
    assert [row["input_length"] for row in rows_of(tmp_path / "t.jsonl")] == [40, 40]
