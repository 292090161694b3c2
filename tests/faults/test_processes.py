"""Signals to real processes: whatever ends a tuner, its server goes too and the same command goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import psutil
import pytest
from optuna.trial import TrialState
from tiny_model import write_tiny_model

STANDIN = Path(__file__).parents[1] / "engines" / "vllm" / "standin.py"
LAUNCHER = shlex.join([sys.executable, "-I", "-S", str(STANDIN)]) + " serve {args}"
MARK = "STANDIN_FAULT"


@dataclass
class Tuning:
    """A tune job whose servers are stand-ins; `fault` is the next one's."""

    folder: Path
    process: subprocess.Popen[str] | None = None

    def fault(self, fault: str, text: str = "") -> None:
        (self.folder / "fault").write_text(f"{fault}\n{text}")

    def start(self) -> subprocess.Popen[str]:
        job = ["--gpu", "cpu", "--engine", "vllm", "--vllm-version", "0.21.0", "--launcher", LAUNCHER]
        files = ["--model", str(self.folder / "model"), "--trace", str(self.folder / "trace.jsonl")]
        asked = ["--slo-p99", "2s", "--requests", "50", "--trials", "2", "--study", "hurt"]
        path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tuner", *job, *files, *asked],
            cwd=self.folder,
            env={**os.environ, MARK: str(self.folder / "fault"), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def others(self) -> list[psutil.Process]:
        """What of it lives besides the tuner itself."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == str(self.folder / "fault")
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        assert self.process is not None
        return [process for process in found if process.pid != self.process.pid]

    def servers(self) -> list[psutil.Process]:
        return [p for p in self.others() if any(str(STANDIN) in word for word in p.cmdline())]

    def serving(self) -> bool:
        """Whether a server has taken requests: the replay then waits for one that never answers."""
        logs = (self.folder / "studies" / "hurt").glob("trials/*/server.log")
        return any("startup complete" in log.read_text() for log in logs)

    def states(self) -> list[TrialState]:
        storage = f"sqlite:///{self.folder}/studies/hurt/study.db"
        return [t.state for t in optuna.load_study(study_name="hurt", storage=storage).trials]


@pytest.fixture
def tuning(tmp_path: Path) -> Iterator[Tuning]:
    write_tiny_model(tmp_path / "model")
    rows = [{"timestamp": 100 * i, "input_length": 20, "output_length": 4} for i in range(60)]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = Tuning(tmp_path)
    made.fault("hangs_while_serving")
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()
        for other in made.others():
            other.kill()


def until(condition: Callable[[], object], limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM]],
    ids=["ctrl-c twice", "terminated"],
)
def test_the_server_goes_with_its_tuner_and_the_same_command_goes_on(
    tuning: Tuning, signals: list[signal.Signals]
) -> None:
    process = tuning.start()
    assert until(tuning.serving)
    assert len(tuning.servers()) == 1
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    assert "once more ends at once" in err and "the same command goes on where it stopped" in err
    assert until(lambda: not tuning.others()), tuning.others()
    # the next start finds nothing in its way, and ends in a result
    tuning.fault("dies", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    out, err = tuning.start().communicate(timeout=60)
    assert tuning.process is not None and tuning.process.returncode == 3, err
    assert TrialState.RUNNING not in tuning.states() and not tuning.others()


def test_a_model_folder_that_vanishes_ends_the_job_resumably(tuning: Tuning) -> None:
    said = "OSError: Can't load the configuration of '/models/m'. If you were trying to load it from"
    tuning.fault(
        "dies", f"{said} 'https://huggingface.co/models', make sure you don't have a local directory"
    )
    _, err = tuning.start().communicate(timeout=60)
    assert tuning.process is not None and tuning.process.returncode == 5, err
    assert "Traceback" not in err and "kimi-tune: " in err
    assert TrialState.RUNNING not in tuning.states() and not tuning.others()
