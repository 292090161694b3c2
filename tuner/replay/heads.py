"""Request heads: everything that does not change from request to request is joined beforehand."""

from __future__ import annotations

import uuid

from tuner.replay.options import api_key
from tuner.replay.server import BaseUrl


class Heads:
    """Heads of POST requests to one server."""

    def __init__(self, url: BaseUrl) -> None:
        self._root = url.root.encode() + b"/v1"
        # ids never repeat between replays: a server may still be ending requests of the last one; they have
        # the form of a UUID, the only one that some servers take, and end with the request's number
        self._salt = str(uuid.uuid4()).rpartition("-")[0].encode()
        lines = [
            f"Host: {url.host_header}",
            "Accept: text/event-stream",
            "Content-Type: application/json",
            "User-Agent: kimi-tune",
        ]
        if key := api_key():
            lines.append(f"Authorization: Bearer {key}")
        self._fixed = "\r\n".join(lines).encode()

    def head(self, path: bytes, index: int, length: int) -> bytes:
        """The head of one request, for a path behind /v1 and a body of so many bytes."""
        return b"POST %b%b HTTP/1.1\r\n%b\r\nX-Request-Id: %b-%012d\r\nContent-Length: %d\r\n\r\n" % (
            self._root,
            path,
            self._fixed,
            self._salt,
            index,
            length,
        )
