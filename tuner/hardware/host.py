"""What the host says of its own memory."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
GIB = 1024**3


def host_memory_gib() -> float:
    """Memory that this process may use in GiB: the host's, or its control group's limit where that is
    lower.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        total = 8 * GIB
    for limit in _CGROUP_LIMITS:
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return round(total / GIB, 2)
