"""Server-sent events out of bytes that may be cut anywhere (WHATWG HTML, section 9.2)."""

from __future__ import annotations


class EventReader:
    """Turns the bytes of an event stream into the data of its events.

    Lines end with LF, CRLF or CR; comments and unknown fields are left out; several data lines of one event
    are joined by LF. Bytes stay bytes, so that a character cut in two is whole again before anyone decodes
    it.
    """

    __slots__ = ("_after_cr", "_data", "_error", "_idle", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._error = False
        self._idle = True

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """The events that `data` completes: their data, and whether they are named `error`."""
        # nearly every read is one event of one line, with nothing under way
        if (
            self._idle
            and data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data[-1] == 10
            and data.find(b"\r") < 0
        ):
            return [(data[6:-2], False)]
        events = self._feed(data)
        self._idle = not (self._parts or self._data or self._error or self._after_cr)
        return events

    def _feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        if self._after_cr and data:
            if data[0] == 10:
                data = data[1:]
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data[-1] == 13
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            if data:
                self._parts.append(data)
            return []
        if self._parts:
            self._parts.append(data)
            data = b"".join(self._parts)
        lines = data.split(b"\n")
        rest = lines.pop()
        self._parts = [rest] if rest else []
        events: list[tuple[bytes, bool]] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if self._data:
                    payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append((payload, self._error))
                    self._data = []
                self._error = False
            elif line.startswith(b"event:"):
                self._error = line[6:].strip() == b"error"
            elif line == b"data":
                self._data.append(b"")
        return events

    def close(self) -> list[tuple[bytes, bool]]:
        """The event that was under way when the stream ended without its blank line, if any."""
        return self.feed(b"\n\n")
