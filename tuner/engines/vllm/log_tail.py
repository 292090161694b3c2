"""A log while it grows, and its text in bounds."""

from __future__ import annotations

from pathlib import Path


class LogTail:
    """Reads what was added to a log since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines completed since the last call; [] where there are none."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.size)
                added = file.read()
        except OSError:
            return []
        self.size += len(added)
        *whole, self._rest = (self._rest + added).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


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
