"""A server's processes: started in a session of their own, stopped to the last one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tuner.engines.vllm import sessions


class Handle(Protocol):
    """The leader of a session, however it was started."""

    @property
    def pid(self) -> int:
        """The leader's process id, which is the session's too."""
        ...

    def poll(self) -> int | None:
        """Its exit code (negative: the signal), None while it lives."""
        ...


class Child:
    """A process started from here."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it in its own session, both outputs going into `log`.

        Raises:
            OSError: the executable is not there.
        """
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(argv),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()


def stop(handle: Handle, grace_s: float, marker: str = "") -> bool:
    """SIGTERM to the group, SIGKILL to the whole session after the grace, and the leader reaped.

    Returns whether SIGTERM was enough. Safe for what has already ended: members that outlived the leader are
    killed all the same, and so are processes with `marker` (NAME=value) in their environment that have made a
    session of their own.
    """
    session = handle.pid
    gentle = True
    if handle.poll() is None:
        _signal_group(session, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while (handle.poll() is None or sessions.members(session)) and time.monotonic() < deadline:
            time.sleep(0.05)
    if handle.poll() is None or sessions.family(session, marker):
        gentle = False
        _signal_group(session, signal.SIGKILL)
        sessions.end_session(session, marker)
    deadline = time.monotonic() + 10.0
    while handle.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return gentle


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
