"""The warm launcher's side of the tuner: starts preload.py in vLLM's environment and has it fork servers."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.engines.vllm import preload, sessions
from tuner.engines.vllm.owner import Owner

IMPORT_LIMIT_S = 300.0
ANSWER_LIMIT_S = 30.0
MOST_LEFT_OUT = 3


class WarmUnavailable(Exception):
    """Servers cannot be forked; the message says why, in words for the user."""


class Fork:
    """A server that the launcher forked."""

    def __init__(self, launcher: WarmLauncher, pid: int) -> None:
        self._launcher = launcher
        self._pid = pid
        stat = sessions.stat_of(pid)
        self._start = stat.start if stat else 0

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        """Its exit code; 1 where the launcher died before it could tell."""
        code = self._launcher.code_of(self._pid)
        if code is None and not self._launcher.lives and not sessions.alive(self._pid, self._start):
            return 1
        return code


class WarmLauncher:
    """One process that has imported vLLM. Not for several threads at once."""

    def __init__(
        self, python: Path, package_dir: Path, environment: Mapping[str, str], log: Path, owner: Owner
    ) -> None:
        self._python, self._package_dir = python, package_dir
        self._environment, self._log, self._owner = environment, log, owner
        self._process: subprocess.Popen[bytes] | None = None
        self._stamp: tuple[object, ...] = ()
        self._rest = b""
        self._codes: dict[int, int] = {}
        self._launches = 0
        self.version = ""
        self.import_s = 0.0

    @property
    def lives(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def stale(self) -> bool:
        """Whether the vLLM on the disk is no longer the one that was imported."""
        return self.lives and self._stamp != stamp(self._package_dir)

    def start(self) -> None:
        """Import vLLM; returns at once where that is done.

        Raises:
            WarmUnavailable: it cannot be imported, or importing it initialises CUDA.
        """
        if self.lives:
            return
        left_out: list[str] = []
        while (module := self._start(left_out)) is not None:
            left_out.append(module)

    def _start(self, left_out: list[str]) -> str | None:
        """One try; returns a module that has to be left out the next time."""
        self.close()  # one that has died leaves its pipes and its servers
        self._stamp, self._rest, self._codes = stamp(self._package_dir), b"", {}
        self._owner.begin()
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [str(self._python), preload.__file__, *left_out],
                    env={**self._environment, "VLLM_WORKER_MULTIPROC_METHOD": "fork"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise WarmUnavailable(f"{self._python} cannot be started: {error.strerror}") from error
        self._owner.own(self._process.pid)
        try:
            message = self._answer(IMPORT_LIMIT_S, "ready", "refused")
        except WarmUnavailable:
            self.close()
            raise
        if "refused" in message:
            self.close()
            if (module := message.get("module")) and len(left_out) < MOST_LEFT_OUT:
                return str(module)
            raise WarmUnavailable(str(message["refused"]))
        self.version = str(message["ready"]["version"])
        self.import_s = float(message["ready"]["seconds"])
        return None

    def launch(self, argv: Sequence[str], log: Path) -> Fork:
        """Fork a server that runs `vllm *argv`.

        Raises:
            WarmUnavailable: the launcher is gone, or CUDA has become initialised in it.
        """
        self._launches += 1
        request = {"launch": self._launches, "argv": list(argv), "log": str(log.absolute())}
        process = self._process
        try:
            if process is None or process.stdin is None:
                raise BrokenPipeError
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise WarmUnavailable("the warm launcher has died") from error
        message = self._answer(ANSWER_LIMIT_S, "launch")
        if "refused" in message:
            raise WarmUnavailable(str(message["refused"]))
        return Fork(self, int(message["pid"]))

    def code_of(self, pid: int) -> int | None:
        """The exit code of a forked server, None while the launcher has not told of its end."""
        self._read(0.0)
        return self._codes.get(pid)

    def close(self) -> None:
        """Let it go, with every server it forked."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                pass
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            pass
        sessions.end_session(process.pid)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._owner.drop(process.pid)

    def _answer(self, limit_s: float, *keys: str) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            for message in self._read(min(left, 0.5)):
                if any(key in message for key in keys):
                    return message
            if not self.lives:
                raise WarmUnavailable(f"the warm launcher has died, see {self._log}")
        raise WarmUnavailable(f"the warm launcher did not answer for {limit_s:.0f} s")

    def _read(self, wait_s: float) -> list[dict[str, Any]]:
        """Messages that have come; those about ended servers are kept here."""
        process = self._process
        if process is None or process.stdout is None:
            return []
        messages: list[dict[str, Any]] = []
        descriptor = process.stdout.fileno()
        while select.select([descriptor], [], [], wait_s)[0]:
            wait_s = 0.0
            added = os.read(descriptor, 65536)
            if not added:
                break
            *lines, self._rest = (self._rest + added).split(b"\n")
            messages += [json.loads(line) for line in lines]
        for message in messages:
            if "ended" in message:
                self._codes[int(message["ended"])] = int(message["code"])
        return messages


def stamp(package_dir: Path) -> tuple[object, ...]:
    """Changes when the installed vLLM does: times of its folder and version files, names of its metadata."""
    files = (
        package_dir,
        package_dir / "_version.py",
        package_dir / "version.py",
        package_dir / "__init__.py",
    )
    times = tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)
    return (*times, *sorted(entry.name for entry in package_dir.parent.glob("vllm*.dist-info")))
