"""Sessions of processes, read from /proc: who is in one, the CPU time it used, and how to end it.

Standard library only, because this file is also the watcher: run alone (`python -I sessions.py REGISTRY
GRACE_S`) it reads what its parent owns from standard input and, when that pipe closes without a farewell (the
parent was killed), ends it all. One JSON object a line: `{"own": [pid, start]}`, `{"drop": pid}`, `{"at_end":
[argv]}`, `{"forget": [argv]}`, `{"marker": "NAME=value"}`, `{"bye": true}`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """What /proc/PID/stat says. `start` is in clock ticks since boot, `cpu_s` counts reaped children too."""

    pid: int
    state: str
    session: int
    start: int
    cpu_s: float


def stat_of(pid: int) -> Stat | None:
    """The process's entry, or None where there is no such process."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # all of /proc is read: no more than needed
    except OSError:
        return None
    try:
        text = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = text[text.rindex(b")") + 2 :].split()  # the name in brackets may hold anything
    cpu_s = (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / _TICKS
    return Stat(pid, fields[0].decode(), int(fields[3]), int(fields[19]), cpu_s)


def processes() -> Iterator[Stat]:
    """Every process that is not a zombie."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - several times a second; Path objects cost
        if name.isdigit() and (stat := stat_of(int(name))) and stat.state not in "ZX":
            yield stat


def members(session: int) -> list[Stat]:
    """The living processes of a session."""
    return [stat for stat in processes() if stat.session == session]


def alive(pid: int, start: int | None = None) -> bool:
    """Whether the process lives, and is the one that started at `start`."""
    stat = stat_of(pid)
    return stat is not None and stat.state not in "ZX" and start in (None, stat.start)


def marked(marker: str) -> list[Stat]:
    """Living processes whose environment, as they were started, holds `NAME=value`."""
    needle, found = marker.encode(), []
    for stat in processes():
        try:
            if needle in Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0"):
                found.append(stat)
        except OSError:
            continue
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def family(session: int, marker: str = "") -> list[Stat]:
    """The living processes of a session, and those elsewhere that carry the marker."""
    found = {stat.pid: stat for stat in members(session)}
    if marker:
        found.update((stat.pid, stat) for stat in marked(marker))
    return list(found.values())


def end_session(session: int, marker: str = "", limit_s: float = 10.0) -> bool:
    """Kill all of a family until none is left (they may fork meanwhile); False past the limit."""
    deadline = time.monotonic() + limit_s
    while left := family(session, marker):
        send((stat.pid for stat in left), signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Owned:
    """What a parent owns: sessions (by leader and its start time), commands to run at the end, a marker."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.commands: list[list[str]] = []
        self.marker = ""

    def take(self, message: dict[str, object]) -> None:
        """One line of the parent's."""
        match message:
            case {"own": [int(pid), int(start)]}:
                self.leaders[pid] = start
            case {"drop": int(pid)}:
                self.leaders.pop(pid, None)
            case {"at_end": [*argv]}:
                self.commands.append([str(arg) for arg in argv])
            case {"forget": [*argv]}:
                self.commands = [command for command in self.commands if command != argv]
            case {"marker": str(marker)}:
                self.marker = marker

    def _left(self) -> list[Stat]:
        found = {stat.pid: stat for stat in marked(self.marker)} if self.marker else {}
        for pid, start in self.leaders.items():
            leader = stat_of(pid)
            if leader is None or leader.start == start:  # another start time: the number was given anew
                found.update((stat.pid, stat) for stat in members(pid))
        found.pop(os.getpid(), None)
        return list(found.values())

    def end(self, grace_s: float) -> None:
        """SIGTERM to all of it, SIGKILL after the grace, then the commands."""
        send((stat.pid for stat in self._left()), signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while self._left() and time.monotonic() < deadline:
            time.sleep(0.05)
        deadline = time.monotonic() + 30.0
        while (left := self._left()) and time.monotonic() < deadline:
            send((stat.pid for stat in left), signal.SIGKILL)
            time.sleep(0.05)
        for command in self.commands:
            try:
                subprocess.run(command, timeout=60, capture_output=True, stdin=subprocess.DEVNULL)
            except (OSError, subprocess.TimeoutExpired):
                continue


def _watch(registry: str, grace_s: float) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it outlives its parent on purpose
    owned = Owned()
    for line in sys.stdin:
        message = json.loads(line)
        if "bye" in message:
            return
        owned.take(message)
    owned.end(grace_s)
    Path(registry).unlink(missing_ok=True)


if __name__ == "__main__":
    _watch(sys.argv[1], float(sys.argv[2]))
