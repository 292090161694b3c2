"""A started command and everything that has to be gone when it is stopped."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from pathlib import Path

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm import gpu_memory, ports, process, sessions
from tuner.engines.vllm.launchers import Command
from tuner.engines.vllm.limits import Limits
from tuner.engines.vllm.owner import Owner
from tuner.engines.vllm.process import Handle
from tuner.engines.vllm.standstill import Activity
from tuner.masking import mask_file


class Running:
    """Owns one server's session, container, port and GPU memory."""

    def __init__(
        self,
        handle: Handle,
        command: Command,
        port: int,
        limits: Limits,
        owner: Owner,
        memory_before: tuple[int, ...],
        marker: str = "",
        log: Path | None = None,
    ) -> None:
        self.handle = handle
        self.command = command
        self.port = port
        self.notes: list[str] = []
        self._limits = limits
        self._owner = owner
        self._memory_before = memory_before
        self._marker = marker
        self._log = log
        self._stopped = False
        self._lock = threading.Lock()
        self._top: tuple[float, list[int]] = (0.0, [])

    def poll(self) -> int | None:
        """The leader's exit code, None while it lives."""
        return self.handle.poll()

    def activity(self) -> Activity:
        """What the server's process tree is doing, in the container where there is one."""
        tree = sessions.members(self.handle.pid)
        tree += [stat for pid in self._container_pids() if (stat := sessions.stat_of(pid))]
        return Activity(sum(stat.cpu_s for stat in tree), any(stat.state in "RD" for stat in tree))

    def blame(self, failure: LaunchFailure) -> LaunchFailure:
        """The failure, or that of a card that has gone meanwhile: no configuration's fault, and no other one
        would start."""
        if len(gpu_memory.used_bytes()) >= len(self._memory_before):
            return failure
        return LaunchFailure(
            FailureKind.DRIVER,
            f"a GPU does not answer any more (the server's last word: {failure.cause})",
            mend="look for an Xid in dmesg, bring the card back, then give the same command again",
            log=failure.log,
            seconds=failure.seconds,
        )

    def stop(self) -> None:
        """End it all and wait until it is gone; the second call does nothing."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            if self.command.container:
                self._stop_container()
            process.stop(self.handle, self._limits.grace_s, self._marker)
            if sessions.family(self.handle.pid, self._marker):
                self.notes.append("a process of the server cannot be killed (waiting for a driver?)")
            else:
                self._owner.drop(self.handle.pid)
            if self._log is not None:
                with contextlib.suppress(OSError):
                    mask_file(self._log)
            if note := gpu_memory.wait_back(self._memory_before, self._limits.memory_s):
                self.notes.append(note)
            if not self._port_free():
                self.notes.append(f"port {self.port} is still taken after the server was stopped")

    def _stop_container(self) -> None:
        grace_s = self._limits.grace_s
        gone = _run(self.command.stop, grace_s + 15.0) and self._leader_ends(grace_s)
        if not gone:
            _run(self.command.kill, 30.0)
        _run(self.command.remove, 30.0)
        self._owner.forget(list(self.command.remove))

    def _leader_ends(self, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while self.handle.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.handle.poll() is not None

    def _port_free(self) -> bool:
        deadline = time.monotonic() + 2.0
        while not ports.is_free(self.port):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _container_pids(self) -> list[int]:
        if not self.command.top:
            return []
        now = time.monotonic()
        if now - self._top[0] > 5.0:
            pids: list[int] = []
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(list(self.command.top), capture_output=True, text=True, timeout=10)
                pids = [int(line) for line in done.stdout.split() if line.isdigit()]
            self._top = (now, pids)
        return self._top[1]


def _run(argv: tuple[str, ...], limit_s: float) -> bool:
    try:
        done = subprocess.run(list(argv), timeout=limit_s, capture_output=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
