"""The files that a recorder writes: whole lines, each handed to the system at once, rotated by size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from tuner.errors import BadRequest
from tuner.traces.formats.own import header_of

_COMPRESSED = (".gz", ".zst")


class RowFiles:
    """Writes rows into `path`, and after `rotate_bytes` into a next file: trace.jsonl, trace.1.jsonl, …

    Every file begins with the header and can be read alone. What a line needs is with the system when `write`
    returns, so a killed process loses no line that it finished. Nothing that is there is overwritten. A line
    that cannot be written (a full disk) is counted in `lost`, and the file stays whole.

    Raises:
        BadRequest: the file is there already or cannot be made.
    """

    def __init__(self, path: Path, header: dict[str, Any], rotate_bytes: int | None = None) -> None:
        if path.suffix in _COMPRESSED:
            raise BadRequest(
                f"{path.name}: a recording cannot be compressed", "name it .jsonl, and pack it later"
            )
        self.paths: list[Path] = []
        self.lost = 0
        self.fault = ""
        self._base, self._rotate = path, rotate_bytes
        self._first = orjson.dumps(header_of(**header), option=orjson.OPT_APPEND_NEWLINE)
        self._fd = -1
        self._size = 0
        try:
            self._open(path)
        except FileExistsError:
            raise BadRequest(f"{path}: is there already", "name another file") from None
        except OSError as error:
            raise BadRequest(f"{path}: cannot be written ({error.strerror or error})") from None

    @property
    def shown(self) -> str:
        """The files' names as a summary has them."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self._base}{more}"

    def write(self, row: dict[str, Any]) -> None:
        """Append one row."""
        try:
            line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
            # a file holds at least one row, however small the limit
            full = self._rotate is not None and self._size + len(line) > self._rotate
            if full and self._size > len(self._first):
                self._next()
            self._append(line)
        except (OSError, orjson.JSONEncodeError) as error:
            self.lost += 1
            self.fault = str(getattr(error, "strerror", None) or error)

    def close(self) -> None:
        """End the last file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next(self) -> None:
        number = len(self.paths)
        while True:
            path = self._base.with_name(f"{self._base.stem}.{number}{self._base.suffix}")
            try:
                self._open(path)
                return
            except FileExistsError:
                number += 1

    def _open(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.close()
        self._fd, self._size = fd, 0
        self.paths.append(path)
        self._append(self._first)

    def _append(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += written
