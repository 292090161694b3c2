"""Faults of the stand-in, and a look at what is left behind."""

from __future__ import annotations

import os
import shlex
import sys
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

    def survivors(self) -> list[psutil.Process]:
        """Living processes that were started with this fault file in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get("STANDIN_FAULT") == str(self.file):
                    found.append(process)
            except psutil.Error:
                continue
        return found
