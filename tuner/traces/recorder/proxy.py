"""The proxy: bytes go on as they come, and what they were is written down when the last has gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import orjson
from aiohttp import web

from tuner.traces.recorder.requests import is_generation
from tuner.traces.recorder.rows import Exchange, RowMaker
from tuner.traces.recorder.upstream import Upstream, passed_on

_STALE_WITHIN_S = 2.0
_END_WITHIN_S = 0.2


@dataclass(slots=True)
class _Taken:
    """What was seen of one exchange so far."""

    status: int = 0
    content_type: str = ""
    encoding: str = ""
    error: str = ""


class Recorder:
    """A proxy on 127.0.0.1 in front of `upstream`; every finished generation request goes to `rows`.

    An async context manager: it listens inside, on `port` (0: one that is free, known then as `port`).
    """

    def __init__(self, upstream: Upstream, rows: RowMaker, *, port: int = 0) -> None:
        self.upstream, self.rows, self.port = upstream, rows, port
        # one clock for all rows: the wall clock at the start, moved on by the monotonic one
        self._epoch_s = time.time() - time.monotonic()
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """The address to give to clients."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Recorder:
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=1 << 16,
            max_field_size=1 << 16,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_END_WITHIN_S)
        self._session = self.upstream.session()
        try:
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096)
            await site.start()
        except BaseException:
            await self.__aexit__()
            raise
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        at_s = self._epoch_s + time.monotonic()
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        if not is_generation(request.method, request.path):
            data = request.content if request.body_exists else None
            return await self._pass(request, data, _Taken(), lambda chunk: None)
        taken, parts = _Taken(), list[bytes]()
        body = b""
        try:
            body = await request.content.read()
            return await self._pass(request, body, taken, parts.append)
        except asyncio.CancelledError:
            taken.error = "the client went away"
            raise
        except ConnectionError:
            taken.error = "the client went away"
            raise
        finally:
            self.rows.add(
                Exchange(
                    at_ms=round(at_s * 1e3, 3),
                    request=body,
                    request_headers=request.headers,
                    status=taken.status,
                    answer=b"".join(parts),
                    content_type=taken.content_type,
                    encoding=taken.encoding,
                    error=taken.error,
                )
            )

    async def _pass(
        self,
        request: web.BaseRequest,
        data: bytes | aiohttp.StreamReader | None,
        taken: _Taken,
        seen: Callable[[bytes], None],
    ) -> web.StreamResponse:
        """Send the request on and its answer back."""
        try:
            answer = await self._ask(request, data)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            taken.error = f"no answer from the upstream ({type(error).__name__})"
            return _bad_gateway(f"{self.upstream.shown}: {_reason(error)}")
        async with answer:
            taken.status = answer.status
            taken.content_type = answer.headers.get("Content-Type", "").lower()
            taken.encoding = answer.headers.get("Content-Encoding", "")
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=passed_on(answer.headers)
            )
            await response.prepare(request)
            content = answer.content
            while True:
                try:
                    chunk = await content.readany()
                except (aiohttp.ClientError, OSError) as error:
                    taken.error = f"the upstream broke off ({type(error).__name__})"
                    # without the end that a whole answer has, so that the client sees it too
                    if request.transport is not None:
                        request.transport.close()
                    return response
                if not chunk:
                    break
                seen(chunk)
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _ask(
        self, request: web.BaseRequest, data: bytes | aiohttp.StreamReader | None
    ) -> aiohttp.ClientResponse:
        assert self._session is not None
        length = ("content-length",) if isinstance(data, bytes) else ()
        headers = passed_on(request.headers, "host", "expect", *length)
        target = self.upstream.target(request.raw_path)
        begun = time.monotonic()
        while True:
            try:
                return await self._session.request(
                    request.method, target, data=data, headers=headers, allow_redirects=False
                )
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                # an idle connection that the server closed just now: it never saw the request
                at_once = time.monotonic() - begun < _STALE_WITHIN_S
                if not at_once or not isinstance(data, bytes):
                    raise
                begun -= _STALE_WITHIN_S


def _reason(error: Exception) -> str:
    inner = getattr(error, "os_error", error)
    return getattr(inner, "strerror", None) or str(error) or type(error).__name__


def _bad_gateway(what: str) -> web.Response:
    value = {"error": {"message": f"kimi-tune record: {what}", "type": "upstream_error", "code": 502}}
    return web.Response(status=502, body=orjson.dumps(value), content_type="application/json")
