"""What this process has started and must not leave behind, also when it is killed.

A watcher process holds a pipe to this one and ends everything at its end of file. Should the watcher be
killed too, a registry file names what was owned, and the next run clears it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import platformdirs

from tuner.engines.vllm import sessions
from tuner.errors import EngineUnavailable

MARKER = "KIMI_TUNE_OWNER"
"""The environment variable that marks every process started from here."""


def state_folder() -> Path:
    """Where the registry files lie: one per running process, in the user's state folder."""
    return Path(platformdirs.user_state_dir("kimi-tune")) / "servers"


class Owner:
    """Owns server sessions and containers; `close` must find none left."""

    def __init__(self, folder: Path | None = None, grace_s: float = 5.0) -> None:
        self._grace_s = grace_s
        self._folder = folder or state_folder()
        self._token = uuid.uuid4().hex
        self._file = self._folder / f"{os.getpid()}-{self._token[:8]}.json"
        self._watcher: subprocess.Popen[bytes] | None = None
        self._sessions: dict[int, list[list[int]]] = {}
        self._commands: list[list[str]] = []
        self._lock = threading.RLock()

    @property
    def environment(self) -> dict[str, str]:
        """What a child's environment has to hold."""
        return {MARKER: self._token}

    def begin(self) -> None:
        """Start the watcher; before the first process is started, so that no moment is unwatched."""
        with self._lock:
            if self._watcher is not None and self._watcher.poll() is None:
                return
            self._make_folder()
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", sessions.__file__, str(self._file), str(self._grace_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
            self._tell({"marker": f"{MARKER}={self._token}"})
            for pid, known in self._sessions.items():
                self._tell({"own": [pid, known[0][1]]})
            for command in self._commands:
                self._tell({"at_end": command})

    def own(self, session: int) -> None:
        """Take a session; called again it notes the members that have come since."""
        with self._lock:
            stats = sorted(sessions.members(session), key=lambda stat: stat.pid != session)
            known = self._sessions.get(session, [])
            if not known and (leader := sessions.stat_of(session)):
                known = [[leader.pid, leader.start]]
                self._tell({"own": known[0]})
            self._sessions[session] = known + [
                [stat.pid, stat.start] for stat in stats if [stat.pid, stat.start] not in known
            ]
            self._write()

    def drop(self, session: int) -> None:
        """A session has ended."""
        with self._lock:
            if self._sessions.pop(session, None) is not None:
                self._tell({"drop": session})
                self._write()

    def at_end(self, command: list[str]) -> None:
        """A command that removes what no signal reaches (a container)."""
        with self._lock:
            self._commands.append(command)
            self._tell({"at_end": command})
            self._write()

    def forget(self, command: list[str]) -> None:
        """That is gone."""
        with self._lock:
            if command in self._commands:
                self._commands.remove(command)
                self._tell({"forget": command})
                self._write()

    def close(self) -> None:
        """Let the watcher go. What is still owned is left to it: it ends it."""
        with self._lock:
            watcher, self._watcher = self._watcher, None
            if watcher is None or watcher.stdin is None:
                return
            with contextlib.suppress(OSError):
                if not self._sessions and not self._commands:
                    watcher.stdin.write(b'{"bye": true}\n')
                watcher.stdin.close()
            try:
                watcher.wait(timeout=60)
            except subprocess.TimeoutExpired:
                watcher.send_signal(signal.SIGKILL)
                watcher.wait()
            self._file.unlink(missing_ok=True)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            with contextlib.suppress(OSError):
                self._watcher.stdin.write(json.dumps(message).encode() + b"\n")
                self._watcher.stdin.flush()

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EngineUnavailable(
                f"{self._folder}: {error.strerror}", "set XDG_STATE_HOME to a folder that can be written"
            ) from error

    def _write(self) -> None:
        me = sessions.stat_of(os.getpid())
        record = {
            "boot": _boot(),
            "place": _place(),
            "owner": [os.getpid(), me.start if me else 0],
            "sessions": list(self._sessions.values()),
            "commands": self._commands,
        }
        self._make_folder()
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(record))
        draft.replace(self._file)


def clear_leftovers(folder: Path | None = None) -> tuple[str, ...]:
    """End what earlier runs left behind, and say what it was; runs that still live are not touched.

    A process is killed only where its start time is the one recorded, or where it belongs to the session of a
    leader whose start time is.
    """
    said = []
    for file in sorted((folder or state_folder()).glob("*.json")):
        try:
            record = json.loads(file.read_text())
            owner, boot, place = record["owner"], record["boot"], record["place"]
            recorded, commands = record["sessions"], record["commands"]
        except (OSError, ValueError, KeyError):
            file.unlink(missing_ok=True)
            continue
        if place != _place() or (boot == _boot() and sessions.alive(*owner)):
            continue
        if boot == _boot():
            ended = [pid for known in recorded for pid in _end(known)]
            if ended:
                said.append(f"ended {len(ended)} processes that an earlier run had left ({ended[0]} …)")
        for command in commands:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(command, timeout=60, capture_output=True, stdin=subprocess.DEVNULL)
                if done.returncode == 0:
                    said.append(f"removed {command[-1]}, which an earlier run had left")
        file.unlink(missing_ok=True)
    return tuple(said)


def _end(known: list[list[int]]) -> list[int]:
    leader = known[0]
    pids = {pid for pid, start in known if sessions.alive(pid, start)}
    if sessions.alive(*leader):
        pids |= {stat.pid for stat in sessions.members(leader[0])}
    sessions.send(pids, signal.SIGKILL)
    return sorted(pids)


def _place() -> list[str]:
    """Where process numbers mean the same: a home folder can be shared by hosts and by containers."""
    try:
        return [socket.gethostname(), str(Path("/proc/self/ns/pid").readlink())]
    except OSError:
        return [socket.gethostname(), ""]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
