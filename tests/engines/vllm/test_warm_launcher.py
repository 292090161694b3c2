"""The warm launcher over a stand-in for the vllm package: forks serve, faults turn it plain."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from contract import EngineContract, small_trace
from vllm_helpers import STANDIN, Faults, tuner_with_server, wait_for

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm import LauncherKind, VllmEngine
from tuner.replay import Workload
from tuner.space import Installed, LaunchConfig

SMALL = LaunchConfig.of({"max-num-seqs": 4})

SERVE = """
def serve():
    import gc, os, runpy, sys
    print("frozen:", gc.get_freeze_count() > 0)
    sys.argv[0] = {standin!r}
    if os.environ.get("FAKE_FORK_FAULT") and {forked}:
        sys.exit("RuntimeError: Cannot re-initialize CUDA in forked subprocess.")
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
CLI = SERVE.format(standin=str(STANDIN), forked=True) + "main = serve\n"
MODULE = SERVE.format(standin=str(STANDIN), forked=False) + "if __name__ == '__main__':\n    serve()\n"
TORCH = """
import os, sys
class cuda:
    def is_initialized():
        return os.environ.get("FAKE_CUDA_BY") in sys.modules
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `vllm` whose command is the stand-in, and a `torch` that knows about CUDA."""
    site = tmp_path / "site"
    files = {
        "torch/__init__.py": TORCH,
        "vllm/__init__.py": "__version__ = '0.21.0'\nimport torch\nprint('noise')\n",
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/cli/__init__.py": "",
        "vllm/entrypoints/cli/main.py": CLI,
        "vllm/entrypoints/openai/__init__.py": "",
        "vllm/entrypoints/openai/api_server.py": MODULE,
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site / "vllm"


@pytest.fixture
def warm_engine(make_engine: Callable[..., VllmEngine], package: Path) -> Callable[..., VllmEngine]:
    installed = Installed("0.21.0", package, Path(sys.executable))
    return lambda **given: make_engine(installed=installed, launcher="warm", **given)


@pytest.fixture
def engine(warm_engine: Callable[..., VllmEngine]) -> VllmEngine:
    return warm_engine()


class TestWarmEngine(EngineContract):
    @pytest.fixture
    def bad(self, faults: Faults) -> LaunchConfig:
        faults.set("dies", "ValueError: No available memory for the cache blocks.")
        return LaunchConfig.of({"max-num-seqs": 4})


def launchers(engine: VllmEngine) -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "preload.py" in " ".join(p.cmdline())]


def test_one_import_serves_many(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    phases: list[str] = []
    for number in range(3):
        with engine.launch(SMALL, tmp_path / str(number), phases.append) as server:
            assert psutil.Process(server.pid).ppid() == launchers(engine)[0].pid
            assert os.getsid(server.pid) == server.pid
            assert server.replay(Workload(small_trace(8, 200.0))).ok.all()
        assert not psutil.pid_exists(server.pid)
        # a collection in the fork does not touch, and so copy, what was imported
        assert "frozen: True" in (tmp_path / str(number) / "server.log").read_text()
    assert phases.count("importing vLLM once") == 1
    assert engine.launcher is LauncherKind.WARM
    (process,) = launchers(engine)
    engine.close()
    assert not process.is_running()


def test_a_failure_of_the_configuration_is_told_and_forking_goes_on(
    engine: VllmEngine, faults: Faults, tmp_path: Path
) -> None:
    faults.set("dies", "ValueError: No available memory for the cache blocks.")
    with pytest.raises(LaunchFailure) as caught:
        engine.launch(SMALL, tmp_path / "a")
    assert caught.value.kind is FailureKind.KV_MEMORY
    faults.set("")
    with engine.launch(SMALL, tmp_path / "b"):
        assert engine.launcher is LauncherKind.WARM


def test_a_fork_killed_while_it_serves(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    faults.set("killed_while_serving")
    with engine.launch(SMALL, tmp_path / "a") as server, pytest.raises(LaunchFailure) as caught:
        server.replay(Workload(small_trace()))
    assert caught.value.kind is FailureKind.ENGINE_DEAD
    assert "SIGKILL" in caught.value.cause


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [("FAKE_CUDA_BY", "vllm", "initialises CUDA"), ("FAKE_FORK_FAULT", "1", "forked subprocess")],
)
def test_where_a_fork_cannot_use_the_gpu_launches_are_plain(
    warm_engine: Callable[..., VllmEngine],
    faults: Faults,
    tmp_path: Path,
    variable: str,
    value: str,
    why: str,
) -> None:
    engine = warm_engine(env={"STANDIN_FAULT": str(faults.file), variable: value})
    phases: list[str] = []
    with engine.launch(SMALL, tmp_path / "a", phases.append) as server:
        assert engine.launcher is LauncherKind.PLAIN
        assert psutil.Process(server.pid).ppid() == os.getpid()
    (note,) = engine.notes
    assert why in note
    assert note in phases
    assert not launchers(engine)


def test_a_module_that_would_initialise_cuda_is_left_out(
    warm_engine: Callable[..., VllmEngine], faults: Faults, tmp_path: Path
) -> None:
    module = "vllm.entrypoints.openai.api_server"
    engine = warm_engine(env={"STANDIN_FAULT": str(faults.file), "FAKE_CUDA_BY": module})
    with engine.launch(SMALL, tmp_path / "a"):
        assert engine.launcher is LauncherKind.WARM
        assert launchers(engine)[0].cmdline()[-1] == module


def test_an_import_that_fails_turns_it_plain(
    engine: VllmEngine, package: Path, faults: Faults, tmp_path: Path
) -> None:
    (package / "entrypoints" / "cli" / "main.py").write_text("import no_such_module\n")
    with engine.launch(SMALL, tmp_path / "a"):
        assert engine.launcher is LauncherKind.PLAIN
    assert "no_such_module" in engine.notes[0]


def test_a_launcher_that_died_is_started_again(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    with engine.launch(SMALL, tmp_path / "a"):
        pass
    (process,) = launchers(engine)
    process.kill()
    with engine.launch(SMALL, tmp_path / "b"):
        assert engine.launcher is LauncherKind.WARM


def test_a_server_whose_launcher_is_killed_ends_too(
    engine: VllmEngine, faults: Faults, tmp_path: Path
) -> None:
    faults.set("leaves_child")
    with engine.launch(SMALL, tmp_path / "a") as server:
        launchers(engine)[0].kill()
        deadline = time.monotonic() + 10
        while psutil.pid_exists(server.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(LaunchFailure):
            server.replay(Workload(small_trace()))
    assert not faults.survivors()


def test_a_vllm_that_changes_is_imported_again(
    engine: VllmEngine, package: Path, faults: Faults, tmp_path: Path
) -> None:
    phases: list[str] = []
    with engine.launch(SMALL, tmp_path / "a", phases.append):
        pass
    (package / "_version.py").write_text("__version__ = '0.22.0'\n")
    with engine.launch(SMALL, tmp_path / "b", phases.append):
        pass
    assert phases.count("importing vLLM once") == 2
    assert any("changed" in phase for phase in phases)


def test_the_winner_is_confirmed_plainly(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    with engine.launch(SMALL, tmp_path / "a"):
        pass
    with engine.plainly().launch(SMALL, tmp_path / "b") as server:
        assert psutil.Process(server.pid).ppid() == os.getpid()
        assert server.argv[1:3] == ("-m", "vllm.entrypoints.openai.api_server")
    assert not launchers(engine)
    assert engine.notes == ()


def test_the_tuner_killed_leaves_nothing_forked(package: Path, faults: Faults, tmp_path: Path) -> None:
    faults.set("stubborn_family")
    with tuner_with_server(faults, tmp_path, "warm", package) as process:
        assert len(faults.survivors()) == 3  # the launcher, the server and its child
        process.kill()
    assert wait_for(lambda: not faults.survivors())
    assert wait_for(lambda: not list((tmp_path / "state").iterdir()))
