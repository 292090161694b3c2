"""Who runs a study: a process that can be told from a later one with the same number."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_owner() -> dict[str, Any]:
    """Host, process id and start time of this process, as plain JSON values."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def here(owner: Mapping[str, Any]) -> bool:
    """Whether it is a process of this host."""
    return bool(owner.get("host") == socket.gethostname())


def alive(owner: Mapping[str, Any], *, shared: bool) -> bool:
    """Whether the process that `owner` describes still runs.

    Of another host nothing is known: where the storage is `shared` between hosts it counts as alive; a study
    in a local file has been moved here, so its owner is gone.
    """
    if not here(owner):
        return shared
    pid = int(owner.get("pid", 0))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return owner.get("started") == _started(pid)


def _started(pid: int) -> str:
    """Boot and clock ticks since it at which a process began; empty where the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    # the name in brackets may hold blanks; the start time is the 20th field after it (proc(5))
    return f"{boot}/{stat.rpartition(')')[2].split()[19]}"
