"""The receiving half of HTTP/1.1, fed with the bytes of a socket as they come (RFC 9112)."""

from __future__ import annotations

from enum import IntEnum

_HEAD_LIMIT = 65_536
_SIZE_LINE_LIMIT = 4_096
_HEX = frozenset(b"0123456789abcdefABCDEF")
# size lines seen before: a stream has chunks of a handful of lengths, and a look-up costs less than a parse
_SIZES: dict[bytes, int] = {}
_SIZES_KEPT = 4_096


class ProtocolError(Exception):
    """The bytes are no HTTP/1.1 response."""


class _State(IntEnum):
    HEAD = 0
    FIXED = 1
    CHUNKED = 2
    TRAILER = 3
    UNTIL_CLOSE = 4
    DONE = 5


class ResponseReader:
    """Reads one response; `reset` makes it ready for the next one on the connection."""

    __slots__ = (
        "_after_chunk",
        "_boundary",
        "_left",
        "_rest",
        "_state",
        "content_type",
        "keep_alive",
        "status",
        "streams",
    )

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the last response."""
        self.status = 0
        self.content_type = b""
        self.keep_alive = True
        self.streams = False
        """Whether this is an event stream that began with status 200 and says itself where it ends."""
        self._state = _State.HEAD
        self._rest = b""
        self._left = 0
        self._after_chunk = False
        self._boundary = True

    @property
    def done(self) -> bool:
        """Whether the response is complete."""
        return self._state is _State.DONE

    @property
    def began(self) -> bool:
        """Whether any byte of the response was read."""
        return self._state is not _State.HEAD or bool(self._rest)

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`.

        Raises:
            ProtocolError: not a response as HTTP/1.1 has it.
        """
        state = self._state
        if state is _State.CHUNKED:
            return self._chunked(data)
        if state is _State.FIXED:
            return self._fixed(data)
        if state is _State.UNTIL_CLOSE:
            return data
        if state is _State.HEAD:
            return self._head(data)
        if state is _State.TRAILER:
            self._trailer(data)
        else:
            self.keep_alive = False
        return b""

    def close(self) -> bool:
        """The connection ended; whether the response is complete."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE
        return self._state is _State.DONE

    def _head(self, data: bytes) -> bytes:
        data = self._rest + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _HEAD_LIMIT or not b"HTTP/1."[: len(data)] == data[:7]:
                raise ProtocolError("not an HTTP/1.1 response")
            self._rest = data
            return b""
        self._rest = b""
        lines = data[:end].split(b"\r\n")
        parts = lines[0].split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise ProtocolError("not an HTTP/1.1 response")
        self.status = int(parts[1])
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        body = data[end + 4 :]
        if 100 <= self.status < 200:
            self.status = 0
            return self._head(body) if body else b""
        self._frame(headers, old=parts[0] == b"HTTP/1.0")
        return self.feed(body) if body else b""

    def _frame(self, headers: dict[bytes, bytes], *, old: bool) -> None:
        self.content_type = headers.get(b"content-type", b"").lower()
        connection = headers.get(b"connection", b"").lower()
        self.keep_alive = b"close" not in connection and (not old or b"keep-alive" in connection)
        if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            self._state = _State.CHUNKED
            self.streams = self.status == 200 and self.content_type.startswith(b"text/event-stream")
        elif b"content-length" in headers:
            length = headers[b"content-length"]
            if not length.isdigit() or len(length) > 18:
                raise ProtocolError("the content-length is not a number")
            self._left = int(length)
            self._state = _State.FIXED if self._left else _State.DONE
        elif self.status in (204, 304):
            self._state = _State.DONE
        else:
            self.keep_alive = False
            self._state = _State.UNTIL_CLOSE

    def _fixed(self, data: bytes) -> bytes:
        if len(data) > self._left:
            self.keep_alive = False
            data = data[: self._left]
        self._left -= len(data)
        if not self._left:
            self._state = _State.DONE
        return data

    def _chunked(self, data: bytes) -> bytes:
        if self._boundary:
            # nearly every read is one whole chunk
            end = data.find(b"\r\n")
            size = _SIZES.get(data[:end], 0)
            if size and len(data) == end + size + 4 and data[-2:] == b"\r\n":
                return data[end + 2 : -2]
        if self._rest:
            data = self._rest + data
            self._rest = b""
        out: list[bytes] = []
        at, size = 0, len(data)
        while True:
            if self._left:
                piece = data[at : at + self._left]
                out.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._after_chunk = True
            if self._after_chunk:
                if size - at < 2:
                    self._rest = data[at:]
                    break
                if data[at : at + 2] != b"\r\n":
                    raise ProtocolError("a chunk is longer than its size says")
                at += 2
                self._after_chunk = False
            end = data.find(b"\r\n", at)
            if end < 0:
                if size - at > _SIZE_LINE_LIMIT:
                    raise ProtocolError("a chunk has no size")
                self._rest = data[at:]
                break
            digits = data[at:end].split(b";", 1)[0].strip()
            if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
                raise ProtocolError("a chunk has no size")
            self._left = int(digits, 16)
            if self._left and len(_SIZES) < _SIZES_KEPT:
                _SIZES[data[at:end]] = self._left
            at = end + 2
            if not self._left:
                self._state = _State.TRAILER
                self._trailer(data[at:])
                break
        self._boundary = not (self._left or self._after_chunk or self._rest)
        return out[0] if len(out) == 1 else b"".join(out)

    def _trailer(self, data: bytes) -> None:
        data = self._rest + data
        while (end := data.find(b"\r\n")) >= 0:
            line, data = data[:end], data[end + 2 :]
            if not line:
                self._state = _State.DONE
                if data:
                    self.keep_alive = False
                data = b""
                break
        if len(data) > _HEAD_LIMIT:
            raise ProtocolError("the trailer does not end")
        self._rest = data
