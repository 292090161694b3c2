"""What the doctor makes of a machine, and that it looks at this one without starting anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.engines.vllm import sessions
from tuner.engines.vllm.doctor import Check, Status, examine
from tuner.engines.vllm.machine import (
    Card,
    Holder,
    Machine,
    Model,
    Torch,
    left_servers,
    look,
    torch_beside,
    torch_of,
)
from tuner.errors import BadRequest
from tuner.space.installed import Installed

CARD = Card("NVIDIA A100-SXM4-80GB", 80.0, 79.4)
GOOD = Machine(
    cards=(CARD,),
    driver="580.105.08",
    driver_cuda=(13, 0),
    vllm=Installed("0.21.0", Path("/x/vllm"), Path("/x/python")),
    torch=Torch("2.11.0+cu130", (13, 0)),
    disks=(("studies", Path("/s"), 100.0),),
    shm_gib=64.0,
    open_files=(1024, 1048576),
    host_free_gib=200.0,
    compilers=("gcc", "nvcc"),
    optional={"uvloop": True, "optuna_dashboard": False},
)


def checked(machine: Machine) -> dict[str, Check]:
    return {check.name: check for check in examine(machine=machine).checks}


def test_a_good_machine_has_nothing_to_mend_but_options() -> None:
    report = examine(machine=GOOD)
    assert report.ok
    assert {check.status for check in report.checks} == {Status.OK}
    assert [check.name for check in report.checks if check.mend] == ["optuna-dashboard"]


@pytest.mark.parametrize(
    ("change", "name", "status", "words"),
    [
        ({"vllm": None, "torch": None}, "vLLM", "fail", "not found"),
        ({"vllm": Installed("0.12.0", Path("/x"), Path("/p"))}, "vLLM", "warn", "0.12.0"),
        ({"vllm": Installed("who knows", Path("/x"), Path("/p"))}, "vLLM", "warn", "who knows"),
        ({"torch": None}, "torch", "fail", "not found"),
        ({"cards": ()}, "GPU", "fail", "none"),
        ({"driver_cuda": (12, 4)}, "driver", "fail", "CUDA 13.0"),
        ({"driver_cuda": (13, 0), "torch": Torch("2", (13, 1))}, "driver", "warn", "CUDA 13.1"),
        (
            {"cards": (replace(CARD, free_gib=3.0, holders=(Holder(42, "python train.py", 76.1),)),)},
            "GPU 0 memory",
            "fail",
            "42 (python train.py, 76.1 GiB)",
        ),
        ({"cards": (replace(CARD, free_gib=50.0),)}, "GPU 0 memory", "warn", "not seen from here"),
        ({"disks": (("studies", Path("/s"), 0.01),)}, "disk of studies", "fail", "/s"),
        ({"disks": (("studies", Path("/s"), 1.0),)}, "disk of studies", "warn", "1.0 GiB"),
        ({"shm_gib": 0.0625, "cards": (CARD, CARD)}, "shared memory", "warn", "0.06"),
        ({"open_files": (1024, 1024)}, "open files", "warn", "1024"),
        ({"host_free_gib": 2.0}, "host memory", "warn", "2.0"),
        ({"compilers": ()}, "compiler", "warn", "no C compiler"),
        (
            {"model": Model("m", problem=BadRequest("m: no such model", "name another"))},
            "model",
            "fail",
            "m: no",
        ),
        ({"model": Model("m")}, "model", "warn", "not on this machine"),
        ({"model": Model("m", Path("/m"))}, "model", "warn", "weights"),
        ({"model": Model("m", Path("/m"), weights=True)}, "model", "ok", "/m"),
        ({"leftovers": ("process 7",)}, "left servers", "warn", "process 7"),
    ],
)
def test_what_is_wrong_is_named_with_its_mend(
    change: dict[str, object], name: str, status: str, words: str
) -> None:
    machine = replace(GOOD, **change)  # type: ignore[arg-type]
    check = checked(machine)[name]
    assert (check.status, words in check.detail) == (status, True), check
    assert check.mend or status == "ok"
    assert examine(machine=machine).ok is (status != "fail")


def test_a_cpu_build_needs_no_gpu() -> None:
    machine = replace(GOOD, cards=(), torch=Torch("2.13.0+cpu", None))
    assert checked(machine)["GPU"].status is Status.OK
    assert examine(machine=machine).ok


def test_one_small_shm_is_enough_for_one_gpu() -> None:
    assert checked(replace(GOOD, shm_gib=0.0625))["shared memory"].status is Status.OK


def test_json_is_plain() -> None:
    said = json.loads(json.dumps(examine(machine=replace(GOOD, vllm=None)).to_json()))
    assert said["ok"] is False
    assert {"name": "vLLM", "status": "fail"}.items() <= said["checks"][0].items()


def test_this_machine_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    machine = look(model=str(tmp_path / "nothing"), folder=tmp_path / "deep" / "studies", python=None)
    places = {name: path for name, path, _ in machine.disks}
    assert places["studies"] == tmp_path / "deep" / "studies"
    assert not (tmp_path / "deep").exists()
    assert all(free >= 0 for _, _, free in machine.disks)
    assert machine.model is not None and machine.model.problem is not None
    assert machine.open_files is not None and machine.open_files[0] > 0
    json.dumps(examine(machine=machine).to_json())


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        ("__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n", Torch("2.11.0+cu130", (13, 0))),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", Torch("2.13.0+cpu", None)),
        ("__version__ = '2.4.0'\ncuda = '12.1'\n", Torch("2.4.0", (12, 1))),
        ("", None),
    ],
)
def test_torch_is_read_without_importing_it(tmp_path: Path, text: str, torch: Torch | None) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(text)
    assert torch_beside(tmp_path / "vllm") == torch


def test_no_torch_at_all(tmp_path: Path) -> None:
    assert torch_beside(tmp_path / "vllm") is None


def test_torch_in_another_folder_of_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM on PYTHONPATH, over an environment that has the torch."""
    (tmp_path / "over" / "vllm").mkdir(parents=True)
    vllm = Installed("0.21.0", tmp_path / "over" / "vllm", Path(sys.executable))
    under = tmp_path / "under" / "torch"
    under.mkdir(parents=True)
    (under / "__init__.py").write_text("")
    (under / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    monkeypatch.setenv("PYTHONPATH", str(under.parent))
    assert torch_of(vllm) == Torch("2.11.0+cu130", (13, 0))
    (under / "version.py").unlink()
    assert torch_of(vllm) is None


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def _record(folder: Path, owner: list[int], session: list[list[int]]) -> None:
    (folder / "1-x.json").write_text(
        json.dumps({"boot": "b", "owner": owner, "sessions": [session], "commands": []})
    )


def test_servers_whose_run_is_gone_are_left_over(tmp_path: Path, server: subprocess.Popen[bytes]) -> None:
    stat, me = sessions.stat_of(server.pid), sessions.stat_of(os.getpid())
    assert stat is not None and me is not None
    _record(tmp_path, [me.pid, me.start], [[stat.pid, stat.start]])
    assert left_servers(tmp_path) == ()
    _record(tmp_path, [me.pid, me.start - 1], [[stat.pid, stat.start]])
    assert left_servers(tmp_path) == (f"process {server.pid}",)
    _record(tmp_path, [me.pid, me.start - 1], [[stat.pid, stat.start - 1]])
    assert left_servers(tmp_path) == ()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"owner": 3}', '{"owner": [1, 2], "sessions": [[1]]}'])
def test_damaged_records_are_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "1-x.json").write_text(text)
    assert left_servers(tmp_path) == ()
