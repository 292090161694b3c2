"""The proxy: bytes go on as they come, and what they were is written down when the last has gone.

Plain asyncio protocols, because every token of every stream passes: each read is one step of the framing and
one write.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

import orjson

from tuner.traces.recorder.messages import HEAD_LIMIT, Body, Head, body_of_request
from tuner.traces.recorder.requests import is_generation
from tuner.traces.recorder.rows import Exchange, RowMaker
from tuner.traces.recorder.upstream import Connection, Upstream, connect_soon

_WRITE_DOWN_S = 0.002
_BODY_METHODS = (b"POST", b"PUT", b"PATCH")


class Recorder:
    """A proxy on 127.0.0.1 in front of `upstream`; every finished generation request goes to `rows`.

    An async context manager: it listens inside, on `port` (0: one that is free, known then as `port`).
    """

    def __init__(self, upstream: Upstream, rows: RowMaker, *, port: int = 0) -> None:
        self.upstream, self.rows, self.port = upstream, rows, port
        self.clients: set[Client] = set()
        # one clock for all rows: the wall clock at the start, moved on by the monotonic one
        self._epoch_s = time.time() - time.monotonic()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The address to give to clients."""
        return f"http://127.0.0.1:{self.port}"

    def now_ms(self) -> float:
        """Milliseconds of the epoch, by the monotonic clock."""
        return round((self._epoch_s + time.monotonic()) * 1e3, 3)

    async def __aenter__(self) -> Recorder:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Client(self), "127.0.0.1", self.port, backlog=4096, reuse_address=True
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for client in tuple(self.clients):
            client.cut("the recording ended")
        self.upstream.close()
        await asyncio.sleep(5 * _WRITE_DOWN_S)  # what has just ended is still to be written down


class Client(asyncio.Protocol):
    """One connection of a client; its requests are served one after the other."""

    transport: asyncio.Transport

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._buffer = b""
        self._head: Head | None = None
        self._body = Body()
        self._at_ms = 0.0
        self._call: Call | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class
        self.recorder.clients.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.recorder.clients.discard(self)
        if self._call is not None:
            self._call.abandon("the client went away")

    def pause_writing(self) -> None:
        if self._call is not None:
            self._call.hold(True)

    def resume_writing(self) -> None:
        if self._call is not None:
            self._call.hold(False)

    def cut(self, why: str) -> None:
        """End the connection and what is under way on it."""
        if self._call is not None:
            self._call.abandon(why)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._call is None:
            try:
                self._advance()
            except ValueError:
                self.transport.write(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                self.transport.close()

    def _advance(self) -> None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_LIMIT:
                    raise ValueError("the head is too long")
                return
            self._at_ms = self.recorder.now_ms()
            self._head = Head.parse(self._buffer[:end].lstrip(b"\r\n"))
            self._body = body_of_request(self._head)
            self._buffer = self._buffer[end + 4 :]
            if self._head.fields.get("expect", "").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._buffer:
            self._buffer = self._buffer[self._body.feed(self._buffer) :]
        if self._body.done:
            head, self._head = self._head, None
            self._call = Call(self, head, b"".join(self._body.parts), self._at_ms)
            self._call.send()

    def finished(self, *, close: bool) -> None:
        """The answer has gone: the next request, if it is there."""
        self._call = None
        if close:
            self.transport.close()
        elif self._buffer:
            self._advance()


class Call:
    """One request on its way to the upstream and back."""

    def __init__(self, client: Client, head: Head, body: bytes, at_ms: float) -> None:
        self._client, self._request, self._sent_body, self._at_ms = client, head, body, at_ms
        self._recorder = client.recorder
        self.method, target, _ = head.first.split(b" ", 2)
        path = target.partition(b"?")[0].decode("latin-1")
        self._counts = is_generation(self.method.decode("latin-1"), path)
        lines = head.kept(b"host", b"expect", b"content-length", b"transfer-encoding", b"trailer")
        upstream = self._recorder.upstream
        first = b"%b %b%b %b" % (self.method, upstream.root, target, head.first.rpartition(b" ")[2])
        length = [b"Content-Length: %d" % len(body)] if body or self.method in _BODY_METHODS else []
        self._sent_head = b"\r\n".join([first, upstream.host_line, *lines, *length]) + b"\r\n\r\n"
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._answer: Head | None = None
        self._body: Body | None = None
        self._status = 0
        self._close = head.closes
        self._over = self._retried = self._held = False

    def send(self) -> None:
        """Send it, on an idle connection where there is one."""
        connection = self._recorder.upstream.idle()
        if connection is None:
            self._connecting = connect_soon(self._recorder.upstream, self._send_on, self._unreachable)
        else:
            self._send_on(connection)

    def _send_on(self, connection: Connection) -> None:
        self._connecting = None
        self._connection = connection
        connection.send(self, self._sent_head, self._sent_body)

    def hold(self, hold: bool) -> None:
        """The client reads slower than the upstream writes, or has caught up."""
        if self._connection is None or hold is self._held:
            return
        self._held = hold
        if hold:
            self._connection.transport.pause_reading()
        else:
            self._connection.transport.resume_reading()

    def head(self, status: int, head: Head, body: Body) -> bytes:
        """The response began; chunks are passed on as they are, framing included."""
        self._status, self._answer, self._body = status, head, body
        lines = head.kept()
        if self._close or (not body.chunked and body.left is None):
            self._close = True
            lines.append(b"Connection: close")
        return b"\r\n".join([head.first, *lines]) + b"\r\n\r\n"

    def passed(self, data: bytes) -> None:
        """Bytes for the client."""
        self._client.transport.write(data)

    def ended(self) -> None:
        """The response is complete."""
        self.hold(False)
        self._write_down("")
        self._client.finished(close=self._close)

    def broken(self, reason: str, *, unseen: bool) -> None:
        """The upstream went away."""
        if unseen and not self._retried:
            self._retried = True
            self._connecting = connect_soon(self._recorder.upstream, self._send_on, self._unreachable)
        elif self._answer is None:
            self._unreachable(reason)
        else:
            self._write_down("the upstream broke off")
            # without the end that a whole answer has, so that the client sees it too
            self._client.finished(close=True)

    def abandon(self, why: str) -> None:
        """Nobody waits for the answer any more."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None and not self._over:
            self._connection.leave()
        self._write_down(why)

    def _unreachable(self, reason: str) -> None:
        what = f"kimi-tune record: no answer from {self._recorder.upstream.shown}: {reason}"
        value = {"error": {"message": what, "type": "upstream_error", "code": 502}}
        body = orjson.dumps(value)
        head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._client.transport.write(head % len(body) + body)
        self._write_down("no answer from the upstream")
        self._client.finished(close=self._close)

    def _write_down(self, error: str) -> None:
        if self._over:
            return
        self._over = True
        if not self._counts:
            return
        answer = self._answer.fields if self._answer is not None else {}
        exchange = Exchange(
            at_ms=self._at_ms,
            request=self._sent_body,
            request_headers=self._request.fields,
            status=self._status,
            answer=b"".join(self._body.parts) if self._body is not None else b"",
            content_type=answer.get("content-type", "").lower(),
            encoding=answer.get("content-encoding", ""),
            error=error,
        )
        # later, so that the last bytes go out first
        asyncio.get_running_loop().call_later(_WRITE_DOWN_S, self._recorder.rows.add, exchange)
