"""Where a recorder passes requests on to, and which headers go along."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from tuner.errors import BadRequest

# RFC 9110, section 7.6.1, and the older names that are still met
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_KEEP_IDLE_S = 75.0  # whatever the server closes before is seen, and the race for it is run again
_CONNECT_S = 30.0


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
        self._root = f"{split.scheme}://{split.netloc}{root}"
        self.shown = f"{split.scheme}://{split.netloc.rpartition('@')[2]}{root}"

    def target(self, path: str) -> URL:
        """The address of a path with its query, byte for byte as the client wrote them."""
        return URL(self._root + path, encoded=True)

    def session(self) -> aiohttp.ClientSession:
        """A session that adds and changes nothing: no cookies, no decompression, no limits."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )


def passed_on(headers: Mapping[str, str], *also_dropped: str) -> CIMultiDict[str]:
    """The headers that go on to the other side: all but those of this connection alone."""
    dropped = _HOP_BY_HOP.union(also_dropped)
    named = headers.get("Connection", "")
    if named:
        dropped |= {name.strip().lower() for name in named.split(",")}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
