"""What the machine must have before a replay: file descriptors and local ports."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import EngineUnavailable

_SPARE_FILES = 64
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ensure_capacity(connections: int, processes: int = 1) -> None:
    """Make room for so many connections at once; the soft limit on open files is raised to the hard one.

    Several client processes share the machine's ports, and each has a limit on files of its own.

    Raises:
        EngineUnavailable: the machine's limits are below that, with the command that raises them.
    """
    files = raise_file_limit()
    each = -(-connections // processes)
    if files is not None and each + _SPARE_FILES > files:
        raise EngineUnavailable(
            f"the load needs {each} connections at once and this process may open {files} files",
            f"raise the hard limit (ulimit -Hn {each + 1024}) or offer less load",
        )
    ports = local_ports()
    if ports is not None and connections > ports:
        raise EngineUnavailable(
            f"the load needs {connections} connections at once and this machine has {ports} local ports",
            "widen net.ipv4.ip_local_port_range or offer less load",
        )


def raise_file_limit() -> int | None:
    """Raise the soft limit on open files to the hard one; the limit now (None: not known, or none)."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    return None if soft == resource.RLIM_INFINITY else soft


def local_ports() -> int | None:
    """How many local ports outgoing connections can use (None: not known)."""
    try:
        low, high = _PORT_RANGE.read_text().split()
        return int(high) - int(low) + 1
    except (OSError, ValueError):
        return None
