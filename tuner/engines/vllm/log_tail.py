"""A log while it grows, and its text in bounds."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOST_BYTES = 200 * 2**20
"""A server's log is cut when it has grown larger: a server that repeats one error fills a disk in minutes."""
MOST_READ_BYTES = 16 * 2**20


class LogTail:
    """Reads what was added to a log since the last look, and keeps the log within `most_bytes`."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.size = 0
        self._most_bytes = most_bytes
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines completed since the last call, of a flood the last ones; [] where there are none."""
        try:
            with self.path.open("rb") as file:
                end = os.fstat(file.fileno()).st_size
                if not self.size <= end <= self.size + MOST_READ_BYTES:  # cut from outside, or a flood
                    self.size, self._rest = max(0, end - MOST_READ_BYTES), b""
                file.seek(self.size)
                added = file.read(MOST_READ_BYTES)
        except OSError:
            return []
        self.size += len(added)
        if self.size > self._most_bytes:
            with contextlib.suppress(OSError):
                self.size = cut(self.path, self._most_bytes // 2)
        *whole, self._rest = (self._rest + added).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


def cut(path: Path, keep_bytes: int) -> int:
    """Keep the beginning of a log that its writer appends to (it goes on behind the new end), say so
    there, and return its new size."""
    os.truncate(path, keep_bytes)
    with path.open("ab") as file:
        file.write(b"\n[what followed was cut: the log had grown over its limit]\n")
        return file.tell()


def read_tail(path: Path, limit: int = 4_000_000) -> str:
    """The log's text; of one longer than `limit` bytes its first quarter and its last three."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= limit:
                return file.read().decode(errors="replace")
            head = file.read(limit // 4)
            file.seek(size - 3 * limit // 4)
            return (head + b"\n" + file.read()).decode(errors="replace")
    except OSError:
        return ""
