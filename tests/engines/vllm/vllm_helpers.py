"""Faults of the stand-in, and a look at what is left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tuner.engines.vllm import Limits

STANDIN = Path(__file__).parent / "standin.py"
QUICK = Limits(
    startup_s=20.0, standstill_s=4.0, replay_standstill_s=1.6, grace_s=0.3, memory_s=1.0, poll_s=0.04
)


LAUNCHER = shlex.join([sys.executable, "-I", "-S", str(STANDIN)]) + " serve {args}"


class Faults:
    """Says which fault the next stand-in has."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def set(self, fault: str, text: str = "") -> None:
        self.file.write_text(f"{fault}\n{text}")

    def survivors(self) -> list[int]:
        """Living processes that were started with this fault file in their environment."""
        mine, found = f"STANDIN_FAULT={self.file}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mine in (entry / "environ").read_bytes().split(b"\0"):  # a zombie's is empty
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


TUNER = """
import sys, time
from pathlib import Path
from tuner.engines.vllm import Limits, VllmEngine
from tuner.hardware import find_gpu
from tuner.space import Installed, LaunchConfig

launcher, fault, place, package = sys.argv[1:]
engine = VllmEngine(
    Installed("0.21.0", Path(package), Path(sys.executable)) if package else None,
    model="model", gpu=find_gpu("cpu"), launcher=launcher, version="0.21.0",
    env={"STANDIN_FAULT": fault}, state_folder=Path(place, "state"), limits=Limits(grace_s=0.3),
)
engine.launch(LaunchConfig.of({}), Path(place, "trial"))
print("up", flush=True)
time.sleep(3600)
"""


def tuner_with_server(
    faults: Faults, place: Path, launcher: str = LAUNCHER, package: Path | None = None
) -> subprocess.Popen[str]:
    """A tuner of its own process that has a server up."""
    process = subprocess.Popen(
        [sys.executable, "-c", TUNER, launcher, str(faults.file), str(place), str(package or "")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def watcher_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The process that ends what a tuner leaves."""
    children = psutil.Process(process.pid).children()
    (watcher,) = [child for child in children if "sessions.py" in " ".join(child.cmdline())]
    return watcher


def wait_for(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    """Whether it becomes true within the limit."""
    deadline = time.monotonic() + limit_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met
