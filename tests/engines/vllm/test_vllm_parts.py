"""The small parts: metrics, standstill, sessions, ports, the environment, what is in flight."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from contract import small_trace
from hypothesis import given
from hypothesis import strategies as st

from tuner.engines.vllm import control, environment, in_flight, metrics, ports, sessions
from tuner.engines.vllm.in_flight import InFlight
from tuner.engines.vllm.log_tail import MOST_READ_BYTES, LogTail, read_tail
from tuner.engines.vllm.standstill import IDLE_SHARE, Activity, Standstill
from tuner.hardware import Platform
from tuner.replay import Workload
from tuner.space.memory import CPU_KV_GIB

SHARED = Path(__file__).parents[3].parent / "shared" / "vllm_logs"


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
def test_metrics_of_a_real_server() -> None:
    read = metrics.parse((SHARED / "h200_0.21.0_metrics.prom").read_text())
    assert read.totals["finished_length"] == 600
    assert read.totals["prompt_tokens"] == 600_007
    assert read.totals["generation_tokens"] == 120_000
    assert read.totals["prefix_hit_tokens"] == 35_712
    assert read.totals["preemptions"] == 0
    assert int(read.cache["num_gpu_blocks"]) * int(read.cache["block_size"]) == 895_776


def test_metrics_of_several_engines_are_summed() -> None:
    text = "\n".join(
        f'vllm:num_preemptions_total{{engine="{engine}",model_name="a\\"b}}c"}} {engine + 1}.0'
        for engine in range(3)
    )
    assert metrics.parse(text).totals == {"preemptions": 6.0}


@given(st.text())
def test_any_page_can_be_read(text: str) -> None:
    metrics.parse(text)
    metrics.parse("\n".join(f"vllm:prompt_tokens_total{line}" for line in text.splitlines()))


def test_differences_and_gauges() -> None:
    waits = metrics.parse("vllm:num_requests_running 0.0\nvllm:num_requests_waiting 2.0\n")
    assert waits.only_waiting
    assert not metrics.parse("vllm:num_requests_running 1.0\nvllm:num_requests_waiting 2.0\n").only_waiting
    assert not metrics.parse("").only_waiting
    before = metrics.Metrics({"a": 3.0})
    assert metrics.Metrics({"a": 5.0, "b": 2.0}).since(before) == {"a": 2.0, "b": 2.0}


@given(
    st.lists(st.tuples(st.floats(0.1, 5.0), st.booleans(), st.floats(0.0, 1.0), st.booleans()), max_size=40)
)
def test_standstill_is_silence_and_idleness_together(steps: list[tuple[float, bool, float, bool]]) -> None:
    now, spoke_s, moved_s, asked_s = 0.0, 0.0, 0.0, 0.0
    last = activity = Activity(0.0, False)
    still = Standstill(0.0, lambda: activity)
    for wait, spoke, share, wants in steps:
        now += wait
        activity = Activity(activity.cpu_s + share * wait, wants)
        still.see(now, spoke=spoke)
        if spoke:
            spoke_s = moved_s = now
        if now - asked_s >= 1.0:
            worked = activity.cpu_s - last.cpu_s >= IDLE_SHARE * (now - asked_s)
            if worked or (activity.wants and last.wants):
                moved_s = now
            asked_s, last = now, activity
        assert still.silent_s == pytest.approx(now - spoke_s)
        assert still.idle_s == pytest.approx(now - moved_s)
        assert still.idle_s <= still.silent_s + 1e-9


def test_an_idle_event_loop_is_not_progress() -> None:
    cpu = 0.0
    still = Standstill(0.0, lambda: Activity(cpu, second % 9 == 0))
    for second in range(1, 61):  # it wakes up now and then, and is seen at it
        cpu += 0.01
        still.see(float(second), spoke=False)
    assert still.idle_s == 60.0


def test_a_process_that_is_not_let_run_is_not_hung() -> None:
    still = Standstill(0.0, lambda: Activity(0.0, True))
    for second in range(1, 61):
        still.see(float(second), spoke=False)
    assert still.idle_s == 0.0
    assert still.silent_s == 60.0


def test_a_process_with_a_strange_name(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b c"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", odd)
    process = subprocess.Popen([str(odd), "60"], start_new_session=True)
    try:
        stat = sessions.stat_of(process.pid)
        assert stat is not None
        assert (stat.pid, stat.session) == (process.pid, process.pid)
        assert [member.pid for member in sessions.members(process.pid)] == [process.pid]
        assert sessions.alive(process.pid, stat.start)
        assert not sessions.alive(process.pid, stat.start + 1)
    finally:
        process.kill()
        process.wait()
    assert sessions.stat_of(process.pid) is None
    assert not sessions.alive(process.pid)


def test_a_zombie_does_not_count() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "pass"], start_new_session=True)
    deadline = time.monotonic() + 10
    while sessions.members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    stat = sessions.stat_of(process.pid)  # not reaped yet
    assert stat is not None
    assert stat.state == "Z"
    assert not sessions.members(process.pid)
    assert sessions.end_session(process.pid)
    process.wait()


def test_ports_are_free_and_never_given_twice() -> None:
    given_out = [ports.free_port() for _ in range(50)]
    assert len(set(given_out)) == 50
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", given_out[0]))
        taken.listen()
        assert not ports.is_free(given_out[0])
        assert ports.is_free(given_out[1])


def test_nobody_answers_on_a_free_port() -> None:
    port = ports.free_port()
    assert control.request(port, "/health", timeout_s=0.5) == (0, "")
    assert control.models(port) == []


def test_the_environment_is_the_users_with_what_is_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "X")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    added = environment.added_environment(Platform.CPU, str(tmp_path), {"NO_COLOR": "yes"})
    assert added["NO_COLOR"] == "yes"
    assert added["HF_HUB_OFFLINE"] == "1"  # a folder
    assert float(added["VLLM_CPU_KVCACHE_SPACE"]) == CPU_KV_GIB
    whole = environment.server_environment(added, tmp_path / "bin" / "python")
    assert "VLLM_API_KEY" not in whole
    assert whole["VLLM_ATTENTION_BACKEND"] == "X"
    assert whole["PATH"].split(os.pathsep)[0] == str(tmp_path / "bin")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    assert "VLLM_CPU_KVCACHE_SPACE" not in environment.added_environment(Platform.CPU, "org/model", {})
    assert "HF_HUB_OFFLINE" not in environment.added_environment(Platform.CUDA, "org/model", {})


def test_in_flight_knows_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(in_flight.time, "monotonic", lambda: now)
    trace = small_trace(4, 1.0)  # at 0, 1, 2 and 3 s
    flight = InFlight(Workload(trace))
    assert flight()  # not begun: the server is being asked something else
    flight.ended(0)
    assert flight()
    flight.ended(1)
    assert not flight()
    now += 2.5
    assert flight()
    flight.ended(3)
    assert not flight()
    closed = InFlight(Workload(trace, users=2))
    closed.ended(3)
    assert closed()


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.lines() == []
    with log.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.lines() == ["one"]
        file.write(b"o\xff\nthree")
        assert tail.lines() == ["two\ufffd"]
        assert tail.lines() == []
    assert read_tail(log) == "one\ntwo\ufffd\nthree"
    assert read_tail(tmp_path / "none") == ""


def test_of_a_huge_log_begin_and_end_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("begin " + "x" * 100_000 + " end")
    text = read_tail(log, limit=1000)
    assert len(text) < 1100
    assert text.startswith("begin")
    assert text.endswith(" end")


def test_a_log_is_cut_at_its_limit_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    tail = LogTail(log, most_bytes=40_000)
    with log.open("ab", buffering=0) as writer:  # as a server's output is: appended
        writer.write(b"Starting to load model\n")
        seen = tail.lines()
        for number in range(2_000):
            writer.write(b"error number %06d, the same again and again\n" % number)
            if number % 100 == 99:
                seen += tail.lines()
                assert log.stat().st_size < 50_000
        writer.write(b"RuntimeError: the last word\n")
    seen += tail.lines()
    text = log.read_text()
    assert text.startswith("Starting to load model\n") and text.endswith("RuntimeError: the last word\n")
    assert "was cut" in text
    assert seen[0] == "Starting to load model" and seen[-1] == "RuntimeError: the last word"
    assert sum("error number" in line for line in seen) == 2_000


def test_a_flood_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    tail = LogTail(log)
    log.write_bytes(b"x" * MOST_READ_BYTES + b"\nand more\nthe end\n")
    assert tail.lines()[-2:] == ["and more", "the end"]
