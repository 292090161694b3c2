"""HTTP/1.1 messages on the wire: their heads read, their bodies followed to the end (RFC 9112)."""

from __future__ import annotations

from dataclasses import dataclass, field

HEAD_LIMIT = 1 << 17
_LINE_LIMIT = 1 << 12
# RFC 9110, section 7.6.1, and the older names that are still met
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te upgrade".split()
)


@dataclass(frozen=True, slots=True)
class Head:
    """First line and headers; `lines` are the headers as they came, `fields` the last of each by lower-case
    name.
    """

    first: bytes
    lines: tuple[tuple[bytes, bytes], ...]
    fields: dict[str, str]

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        """The head in `raw`, without the blank line at its end."""
        first, *rest = raw.split(b"\r\n")
        lines = tuple((line.partition(b":")[0].strip().lower(), line) for line in rest)
        fields = {
            name.decode("latin-1"): line.partition(b":")[2].strip().decode("latin-1") for name, line in lines
        }
        return cls(first, lines, fields)

    def kept(self, *also_dropped: bytes) -> list[bytes]:
        """The header lines that go on to the other side: all but those of this connection alone."""
        named = {name.strip().encode() for name in self.fields.get("connection", "").lower().split(",")}
        dropped = HOP_BY_HOP.union(also_dropped, named)
        return [line for name, line in self.lines if name not in dropped]

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.fields.get("transfer-encoding", "").lower()

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this message."""
        said = self.fields.get("connection", "").lower()
        return "close" in said or (b"HTTP/1.0" in self.first and "keep-alive" not in said)


@dataclass(slots=True)
class Body:
    """Follows a body through the bytes of a connection; `parts` is what it holds, chunk framing taken off.

    `left` bytes without chunks; None: until the connection closes.
    """

    chunked: bool = False
    left: int | None = 0
    parts: list[bytes] = field(default_factory=list)
    done: bool = False
    _line: bytes = b""
    _skip: int = 0
    _trailer: bool = False

    def __post_init__(self) -> None:
        if self.chunked:
            self.left = 0
        else:
            self.done = self.left == 0

    def feed(self, data: bytes) -> int:
        """How many bytes of `data` are this body's.

        Raises:
            ValueError: a chunk's size is none.
        """
        if self.done:
            return 0
        if self.chunked:
            return self._chunks(data)
        if self.left is None:
            self.parts.append(data)
            return len(data)
        used = min(self.left, len(data))
        self.parts.append(data[:used])
        self.left -= used
        self.done = self.left == 0
        return used

    def _chunks(self, data: bytes) -> int:
        at, end = 0, len(data)
        while at < end:
            if self.left:
                used = min(self.left, end - at)
                self.parts.append(data[at : at + used])
                self.left -= used
                at += used
                if not self.left:
                    self._skip = 2
            elif self._skip:
                used = min(self._skip, end - at)
                self._skip -= used
                at += used
            else:
                stop = data.find(b"\n", at)
                if stop < 0:
                    self._line += data[at:]
                    if len(self._line) > _LINE_LIMIT:
                        raise ValueError("a chunk's line is too long")
                    return end
                line = (self._line + data[at:stop]).strip()
                self._line, at = b"", stop + 1
                if self._trailer:
                    if not line:
                        self.done = True
                        return at
                else:
                    self.left = int(line.partition(b";")[0], 16)
                    self._trailer = not self.left
        return at


def body_of_request(head: Head) -> Body:
    """The body that a request's head announces.

    Raises:
        ValueError: a length that is none.
    """
    length = int(head.fields.get("content-length", "0"))
    if length < 0:
        raise ValueError("a negative length")
    return Body(head.chunked, length)


def body_of_response(head: Head, status: int, method: bytes) -> Body:
    """The body that a response's head announces, to a request of this method.

    Raises:
        ValueError: a length that is none.
    """
    if method == b"HEAD" or status in (204, 304) or 100 <= status < 200:
        return Body()
    if head.chunked:
        return Body(chunked=True)
    length = head.fields.get("content-length")
    return Body(left=int(length) if length is not None else None)
