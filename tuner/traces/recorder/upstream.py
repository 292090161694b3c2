"""Where a recorder passes requests on to: the address, and connections that are kept for the next request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast
from urllib.parse import urlsplit

from tuner.errors import BadRequest
from tuner.traces.recorder.messages import HEAD_LIMIT, Body, Head, body_of_response

_CONNECT_S = 30.0


class Exchanging(Protocol):
    """What a connection tells about the request on it."""

    method: bytes

    def head(self, status: int, head: Head, body: Body) -> bytes:
        """The response began; returns the head to pass on."""

    def passed(self, data: bytes) -> None:
        """Bytes to pass on."""

    def ended(self) -> None:
        """The response is complete."""

    def broken(self, reason: str, *, unseen: bool) -> None:
        """The connection went; `unseen`: it was an idle one that may have gone before the request came."""


class Upstream:
    """The server behind, whether or not its URL was written with /v1 at its end.

    Raises:
        BadRequest: not an http or https URL.
    """

    def __init__(self, text: str) -> None:
        split = urlsplit(text if "://" in text else f"http://{text}")
        try:
            valid = split.scheme in ("http", "https") and split.hostname and split.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise BadRequest(f"{text!r} is not the URL of a server", "write it like http://127.0.0.1:8000")
        root = split.path.rstrip("/").removesuffix("/v1")
        place = split.netloc.rpartition("@")[2]
        self.shown = f"{split.scheme}://{place}{root}"
        self.root, self.host_line = root.encode(), b"Host: " + place.encode()
        self._host = split.hostname or ""
        self._tls = ssl.create_default_context() if split.scheme == "https" else None
        self._port = split.port or (443 if self._tls else 80)
        self._idle: list[Connection] = []

    def idle(self) -> Connection | None:
        """A connection that waits for a request."""
        return self._idle.pop() if self._idle else None

    async def connect(self) -> Connection:
        """A new connection.

        Raises:
            OSError, TimeoutError: there is none to be had.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_S):
            _, made = await loop.create_connection(
                lambda: Connection(self._idle),
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._host if self._tls else None,
            )
        return made

    def close(self) -> None:
        """Close what is idle."""
        for connection in tuple(self._idle):
            connection.transport.abort()


class Connection(asyncio.Protocol):
    """One connection to the upstream; requests on it go one after the other."""

    transport: asyncio.Transport

    def __init__(self, idle: list[Connection]) -> None:
        self._idle = idle
        self._call: Exchanging | None = None
        self._buffer = b""
        self._body: Body | None = None
        self._closes = False
        self._used = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class

    def send(self, call: Exchanging, head: bytes, body: bytes) -> None:
        """Send a request whose answer goes to `call`."""
        self._call, self._body, self._buffer = call, None, b""
        self._used += 1
        self.transport.write(head + body if len(body) < 1 << 16 else head)
        if len(body) >= 1 << 16:
            self.transport.write(body)

    def leave(self) -> None:
        """Nobody waits for the answer any more: the server shall see it."""
        self._call = None
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        call = self._call
        if call is None:
            self.transport.abort()
            return
        try:
            self._received(call, data)
        except ValueError:
            self._call = None
            self.transport.abort()
            call.broken("it does not speak HTTP", unseen=False)

    def _received(self, call: Exchanging, data: bytes) -> None:
        out = b""
        while self._body is None:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_LIMIT:
                    raise ValueError("the head is too long")
                return
            head = Head.parse(self._buffer[:end])
            data, self._buffer = self._buffer[end + 4 :], b""
            status = int(head.first.split(None, 2)[1])
            if status == 101 or not head.first.startswith(b"HTTP/1."):
                raise ValueError("not HTTP/1")
            if status >= 200:
                self._body = body_of_response(head, status, call.method)
                self._closes = head.closes or self._body.left is None
                out = call.head(status, head, self._body)
            elif not data:
                return
        used = self._body.feed(data)
        if out or used:
            call.passed(out + data[:used] if out else data if used == len(data) else data[:used])
        if self._body.done:
            self._done(call, whole=used == len(data))

    def _done(self, call: Exchanging, *, whole: bool) -> None:
        self._call = None
        if self._closes or not whole:
            self.transport.close()
        else:
            self._idle.append(self)
        call.ended()

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        call, self._call = self._call, None
        if call is None:
            return
        if self._body is not None and not self._body.chunked and self._body.left is None and error is None:
            call.ended()
            return
        reason = getattr(error, "strerror", None) or (str(error) if error else "") or "connection closed"
        call.broken(reason, unseen=self._used > 1 and self._body is None and not self._buffer)


def connect_soon(
    upstream: Upstream, then: Callable[[Connection], None], failed: Callable[[str], None]
) -> asyncio.Task[None]:
    """Connect in a task of its own."""

    async def connect() -> None:
        try:
            made = await upstream.connect()
        except TimeoutError:
            failed(f"no connection within {_CONNECT_S:.0f} s")
        except (OSError, ValueError) as error:
            failed(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        else:
            then(made)

    return asyncio.get_running_loop().create_task(connect())
