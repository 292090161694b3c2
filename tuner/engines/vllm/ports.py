"""Free ports on 127.0.0.1, never the same one twice in a process."""

from __future__ import annotations

import os
import random
import re
import socket
import threading
from pathlib import Path

_used: set[int] = set()
_lock = threading.Lock()


def is_free(port: int) -> bool:
    """Whether nobody listens there; without SO_REUSEPORT, which would let a second server in unseen.

    SO_REUSEADDR only overlooks connections that are closed and waiting.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port below the kernel's range for outgoing connections.

    A port of that range could be taken by any client between now and the moment, a minute later, when the
    server binds it.
    """
    with _lock:
        low, high = _below_ephemeral()
        source = random.SystemRandom()
        for _ in range(200):
            port = source.randrange(low, high)
            if port not in _used and is_free(port):
                _used.add(port)
                return port
        with socket.socket() as probe:  # no luck: whatever the kernel gives
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])


def _below_ephemeral() -> tuple[int, int]:
    """The range to draw from; KIMI_TUNE_PORTS (18000-19000) narrows it where slots share a machine."""
    if given := re.fullmatch(r"(\d{4,5})-(\d{4,5})", os.environ.get("KIMI_TUNE_PORTS", "")):
        return int(given[1]), int(given[2])
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768
    return (18000, min(first, 32768)) if first > 20000 else (max(first, 61000), 65500)
