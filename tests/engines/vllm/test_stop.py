"""Stopping leaves no process, no port and no registry entry, whatever the server does."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from contract import small_trace
from vllm_helpers import Faults, tuner_with_server, wait_for, watcher_of

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm import VllmEngine, gpu_memory, ports, sessions
from tuner.engines.vllm.owner import Owner, clear_leftovers
from tuner.hardware import find_gpu
from tuner.replay import Workload
from tuner.space import LaunchConfig

SMALL = LaunchConfig.of({"max-num-seqs": 4})
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]


@pytest.mark.parametrize(
    "fault",
    ["", "stubborn", "stubborn_family", "leaves_child", "leaves_escaped_child"],
    ids=lambda f: f or "gentle",
)
def test_everything_is_gone(engine: VllmEngine, faults: Faults, tmp_path: Path, fault: str) -> None:
    faults.set(fault)
    server = engine.launch(SMALL, tmp_path / "trial")
    port, session = int(server.base_url.rsplit(":", 1)[1]), server.pid
    assert not ports.is_free(port)
    assert sessions.members(session)
    assert session != os.getsid(0)
    server.stop()
    assert not faults.survivors()
    assert not sessions.members(session)
    assert ports.is_free(port)
    assert server.notes == ()
    server.stop()


def test_interrupted_while_starting(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    def interrupt(phase: str) -> None:
        if "configuration" in phase:
            raise KeyboardInterrupt

    faults.set("hangs_with_family")
    with pytest.raises(KeyboardInterrupt):
        engine.launch(SMALL, tmp_path / "trial", interrupt)
    assert not faults.survivors()


def test_interrupted_while_replaying(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    def interrupt(done: int, planned: int) -> None:
        raise KeyboardInterrupt

    server = engine.launch(SMALL, tmp_path / "trial")
    with pytest.raises(KeyboardInterrupt):
        server.replay(Workload(small_trace()), progress=interrupt)
    assert not faults.survivors()


def test_closing_the_engine_ends_a_server_that_runs(
    engine: VllmEngine, faults: Faults, tmp_path: Path
) -> None:
    faults.set("stubborn_family")
    engine.launch(SMALL, tmp_path / "trial")
    assert faults.survivors()
    engine.close()
    assert not faults.survivors()


def open_files() -> list[str]:
    return [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]


ROUND = [
    ("dies", "ValueError: No available memory for the cache blocks.", FailureKind.KV_MEMORY),
    ("dies", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", FailureKind.OOM),
    ("dies", "api_server.py: error: unrecognized arguments: --swap-space 4", FailureKind.BAD_FLAG),
    ("dies", "OSError: [Errno 98] Address already in use", FailureKind.PORT),
    ("dies", "RuntimeError: something else", FailureKind.UNKNOWN),
    ("killed", "", FailureKind.HOST_MEMORY),
    ("other_server", "", FailureKind.PORT),
    ("hangs_with_family", "", FailureKind.HUNG),
    ("exits_while_serving", "", FailureKind.ENGINE_DEAD),
    ("killed_while_serving", "", FailureKind.ENGINE_DEAD),
    ("engine_dead", "", FailureKind.ENGINE_DEAD),
    ("stubborn_family", "", None),
    ("leaves_child", "", None),
    ("leaves_escaped_child", "", None),
    ("", "", None),
]


def test_thirty_launches_in_a_row(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    """Every kind of failure, one after the other: no process, no port, no descriptor, no file stays."""
    rounds = ROUND + [row for row in ROUND if row[2] is not FailureKind.HUNG] + ROUND[-1:]  # a hang is slow
    assert len(rounds) == 30
    with engine.launch(SMALL, tmp_path / "first") as server:
        server.replay(Workload(small_trace(6, 200.0, outputs=4)))  # the event loop opens a pipe once for all
    engine.close()
    descriptors = open_files()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    for number in range(30):
        fault, text, expected = rounds[number]
        faults.set(fault, text)
        kind = None
        try:
            with engine.launch(SMALL, tmp_path / str(number)) as server:
                port = int(server.base_url.rsplit(":", 1)[1])
                if expected is not None:
                    server.replay(Workload(small_trace(6, 200.0, outputs=4)))
            assert ports.is_free(port)
        except LaunchFailure as failure:
            assert failure.cause
            kind = failure.kind
        assert kind is expected, (fault, text)
        assert not faults.survivors()
    engine.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    gc.collect()  # what an exception's traceback held
    assert sorted(open_files()) == sorted(descriptors)
    assert not list((tmp_path / "state").iterdir())


def test_the_tuner_killed_leaves_nothing(faults: Faults, tmp_path: Path) -> None:
    faults.set("stubborn_family")
    with tuner_with_server(faults, tmp_path) as process:
        assert len(faults.survivors()) == 2  # the server and its child
        watcher = watcher_of(process)
        watcher.send_signal(signal.SIGINT)  # as a terminal sends it to all: the watcher must outlive that
        watcher.send_signal(signal.SIGTERM)
        process.kill()
    assert wait_for(lambda: not faults.survivors())
    assert wait_for(lambda: not list((tmp_path / "state").iterdir()))


def test_the_next_run_clears_what_tuner_and_watcher_killed_together_left(
    faults: Faults, tmp_path: Path
) -> None:
    faults.set("stubborn_family")
    with tuner_with_server(faults, tmp_path) as process:
        watcher = watcher_of(process)
        assert clear_leftovers(tmp_path / "state") == ()  # its owner lives: not to be touched
        assert len(faults.survivors()) == 2
        watcher.kill()
        process.kill()
    assert len(faults.survivors()) == 2
    (said,) = clear_leftovers(tmp_path / "state")
    assert "2 processes" in said
    assert wait_for(lambda: not faults.survivors())
    assert not list((tmp_path / "state").iterdir())


def test_a_process_with_another_start_time_is_never_killed(tmp_path: Path) -> None:
    innocent = subprocess.Popen(SLEEPER, start_new_session=True)
    try:
        owner = Owner(tmp_path)
        owner.own(innocent.pid)
        (file,) = tmp_path.glob("*.json")
        record = json.loads(file.read_text())
        record["owner"] = [record["owner"][0], 1]  # a tuner of the past, its number given anew
        record["sessions"] = [[[pid, start - 1] for pid, start in known] for known in record["sessions"]]
        file.write_text(json.dumps(record))
        assert clear_leftovers(tmp_path) == ()
        assert innocent.poll() is None
        assert not file.exists()
    finally:
        innocent.kill()
        innocent.wait()


def test_a_registry_of_another_boot_kills_nobody(tmp_path: Path) -> None:
    innocent = subprocess.Popen(SLEEPER, start_new_session=True)
    try:
        owner = Owner(tmp_path)
        owner.own(innocent.pid)
        (file,) = tmp_path.glob("*.json")
        record = {**json.loads(file.read_text()), "boot": "another", "owner": [1, 1]}
        file.write_text(json.dumps(record))
        (tmp_path / "broken.json").write_text("{")
        assert clear_leftovers(tmp_path) == ()
        assert innocent.poll() is None
        assert not list(tmp_path.iterdir())
    finally:
        innocent.kill()
        innocent.wait()


def test_what_another_host_or_container_owns_is_left_alone(tmp_path: Path) -> None:
    innocent = subprocess.Popen(SLEEPER, start_new_session=True)
    try:
        owner = Owner(tmp_path)
        owner.own(innocent.pid)
        (file,) = tmp_path.glob("*.json")
        record = {**json.loads(file.read_text()), "place": ["elsewhere", "pid:[1]"], "owner": [1, 1]}
        file.write_text(json.dumps({**record, "commands": [["touch", str(tmp_path / "touched")]]}))
        assert clear_leftovers(tmp_path) == ()
        assert innocent.poll() is None
        assert [entry.name for entry in tmp_path.iterdir()] == [file.name]
    finally:
        innocent.kill()
        innocent.wait()


def test_a_card_that_is_gone_is_the_machines_fault(
    make_engine: Callable[..., VllmEngine], faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards: list[tuple[int, ...]] = [(0, 0)]
    monkeypatch.setattr(gpu_memory, "used_bytes", lambda: cards[0])
    engine = make_engine(gpu=find_gpu("2xH200-141G"))
    faults.set("exits_while_serving")
    with engine.launch(SMALL, tmp_path / "serving") as server, pytest.raises(LaunchFailure) as caught:
        cards[0] = ()
        server.replay(Workload(small_trace(6, 200.0, outputs=4)))
    assert caught.value.kind is FailureKind.DRIVER and "Xid" in caught.value.mend
    cards[0] = (0, 0)
    faults.set("dies", "RuntimeError: CUDA error: unspecified launch failure")
    with pytest.raises(LaunchFailure) as caught:
        engine.launch(SMALL, tmp_path / "still there")
    assert caught.value.kind is FailureKind.ENGINE_DEAD
