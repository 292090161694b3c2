"""Connections to one server: opened ahead of need, kept alive, never queued for."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from tuner.replay.http1 import ProtocolError, ResponseReader

clock = time.perf_counter
IDLE_LIMIT_S = 4.0
"""Idle connections older than this are replaced: uvicorn closes its own after 5 s."""
_BATCH = 64


class NoConnection(Exception):
    """Not one connection could be opened before the replay."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect: a resolved IP address, and the name for TLS."""

    ip: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str | None = None


class Call(Protocol):
    """A request under way, told of what the socket brings.

    `pieces` holds what was read and when, not parsed yet; `lazy` lets that wait until there are a few of them
    or the response may be complete.
    """

    pieces: list[tuple[float, bytes]]
    lazy: bool

    def body(self, reader: ResponseReader, data: bytes, now: float) -> None:
        """Body bytes, read at `now`."""

    def parsed(self, reader: ResponseReader) -> None:
        """Everything read so far was parsed, and the response goes on."""

    def complete(self, reader: ResponseReader, now: float) -> None:
        """The response is complete."""

    def broken(self, connection: Connection, reason: str, now: float) -> None:
        """The connection ended, or the response is malformed, before the response was complete."""


class Connection(asyncio.Protocol):
    """One keep-alive connection that carries one request at a time."""

    __slots__ = ("_pool", "call", "idle_since", "pooled", "reader", "seen", "transport", "written")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.reader = ResponseReader()
        self.call: Call | None = None
        self.transport: asyncio.Transport | None = None
        self.idle_since = self.written = self.seen = clock()
        self.pooled = False

    def send(self, call: Call, head: bytes, body: bytes) -> None:
        """Write a request."""
        assert self.transport is not None
        self.call = call
        self.reader.reset()
        self.written = self.seen = clock()
        # one write for what fits a segment or two; a long prompt is not copied for the sake of its head
        if len(body) < 16_384:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def abort(self) -> None:
        """Drop the connection and its request without a word to the request."""
        self.call = None
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        now = clock()
        call = self.call
        if call is None:
            self.abort()
            return
        self.seen = now
        pieces = call.pieces
        pieces.append((now, data))
        # a response that says where it ends ends with an empty line, in one read or in a short second one
        if call.lazy and data[-4:] != b"\r\n\r\n" and len(data) > 4 and len(pieces) < _BATCH:
            return
        self.parse()

    def parse(self) -> None:
        """Parse what was read; nothing where no request is under way."""
        call, reader = self.call, self.reader
        if call is None or not call.pieces:
            return
        pieces, call.pieces = call.pieces, []
        now = self.seen
        try:
            for now, data in pieces:
                body = reader.feed(data)
                if body:
                    call.body(reader, body, now)
        except ProtocolError as error:
            self.abort()
            call.broken(self, str(error), now)
            return
        if self.call is not call:
            return
        if not reader.done:
            call.parsed(reader)
            return
        self.call = None
        self.idle_since = now
        if reader.keep_alive:
            self._pool.give(self)
        else:
            self.abort()
        call.complete(reader, now)

    def connection_lost(self, error: Exception | None) -> None:
        now = clock()
        self.parse()
        self._pool.forget(self)
        call, self.call = self.call, None
        if call is None:
            return
        if error is None and self.reader.close():
            call.complete(self.reader, now)
        else:
            call.broken(self, "connection reset" if error else "connection closed early", now)


class Pool:
    """Idle connections, last used first, and a reserve opened ahead so that no request waits for a handshake.

    There is no limit on connections: a request that finds none idle opens its own.
    """

    def __init__(self, address: Address, *, reserve: int, connect_s: float) -> None:
        self._address, self._reserve, self._connect_s = address, reserve, connect_s
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._topping_up = 0
        self._closed = False
        self.opened = 0

    @property
    def connections(self) -> set[Connection]:
        """Every open connection."""
        return self._all

    async def warm(self, count: int) -> None:
        """Open so many connections before the first request.

        Raises:
            NoConnection: none could be opened.
        """
        if count < 1:
            return
        try:
            self.give(await self._connect())
        except OSError as error:
            raise NoConnection(connect_reason(error)) from error
        for at in range(1, count, 64):
            batch = [self._connect() for _ in range(min(64, count - at))]
            for result in await asyncio.gather(*batch, return_exceptions=True):
                if isinstance(result, Connection):
                    self.give(result)

    def take(self) -> Connection | None:
        """An idle connection that is not about to be closed by the server, and a new one on its way."""
        young = clock() - IDLE_LIMIT_S
        found = None
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since < young:
                connection.abort()
                continue
            if connection.transport is not None and not connection.transport.is_closing():
                found = connection
                break
        if len(self._idle) + self._topping_up < self._reserve and not self._closed:
            self._topping_up += 1
            self._start(self._top_up())
        return found

    def tidy(self) -> None:
        """Drop what lay idle too long, so that a burst finds fresh connections; the next `take` tops up."""
        young = clock() - IDLE_LIMIT_S
        for connection in [c for c in self._idle if c.idle_since < young]:
            self._idle.remove(connection)
            connection.abort()

    def open(self, ready: Callable[[Connection], None], failed: Callable[[OSError], None]) -> None:
        """Open a connection for one request."""
        self._start(self._open(ready, failed))

    def give(self, connection: Connection) -> None:
        """Take a connection back."""
        connection.pooled = True
        if self._closed:
            connection.abort()
        else:
            self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._all.discard(connection)
        if connection.call is None and connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        """Abort everything, and let the transports go."""
        self._closed = True
        for task in tuple(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in tuple(self._all):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)

    async def _connect(self) -> Connection:
        address = self._address
        async with asyncio.timeout(self._connect_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self),
                address.ip,
                address.port,
                ssl=address.tls,
                server_hostname=address.name if address.tls else None,
            )
        self._all.add(connection)
        self.opened += 1
        connection.idle_since = clock()
        return connection

    async def _open(self, ready: Callable[[Connection], None], failed: Callable[[OSError], None]) -> None:
        try:
            connection = await self._connect()
        except OSError as error:  # TimeoutError is one
            failed(error)
        else:
            ready(connection)

    async def _top_up(self) -> None:
        try:
            connection = await self._connect()
        except OSError:
            return
        finally:
            self._topping_up -= 1
        connection.pooled = True
        self._idle.insert(0, connection)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)


def connect_reason(error: OSError) -> str:
    """Why a connection could not be opened, in a few words."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'unknown'}"
    return error.strerror.lower() if error.strerror and len(error.strerror) < 60 else "connection failed"
