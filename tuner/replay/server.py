"""What a running server says of itself: is it there, what does it serve, which prompts does it take."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson

from tuner.errors import BadRequest, EngineUnavailable
from tuner.replay.answer import error_text
from tuner.replay.options import KEY_VARIABLES, api_key
from tuner.replay.pool import Address

_TIMEOUT_S = 20.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What `/v1/models` lists: names, and the longest context of each where the server says it."""

    models: tuple[str, ...]
    max_model_len: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A server's address, whether or not it was written with /v1 at its end."""

    split: SplitResult

    @classmethod
    def parse(cls, text: str) -> BaseUrl:
        """The address in `text`.

        Raises:
            BadRequest: not an http or https URL.
        """
        split = urlsplit(text if "://" in text else f"http://{text}")
        try:
            valid = split.scheme in ("http", "https") and split.hostname and split.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise BadRequest(f"{text!r} is not the URL of a server", "write it like http://127.0.0.1:8000")
        return cls(split._replace(query="", fragment=""))

    @property
    def root(self) -> str:
        """The path in front of /v1, without a slash at its end."""
        return self.split.path.rstrip("/").removesuffix("/v1")

    @property
    def host(self) -> str:
        """The host's name or address."""
        return self.split.hostname or ""

    @property
    def port(self) -> int:
        """The port, the scheme's own where none is written."""
        return self.split.port or (443 if self.secure else 80)

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.split.scheme == "https"

    @property
    def host_header(self) -> str:
        """The Host header, without the user's name and password."""
        return self.split.netloc.rpartition("@")[2]

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return f"{self.split.scheme}://{self.host_header}{self.root}"

    def resolve(self) -> Address:
        """The address to connect to, looked up once.

        Raises:
            BadRequest: there is no such host.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BadRequest(f"{self.shown}: no such host", "check the URL") from error
        # IPv4 first: servers that bind 0.0.0.0 are the rule, and "localhost" lists ::1 before 127.0.0.1
        family, _, _, _, place = min(found, key=lambda item: item[0] != socket.AF_INET)
        tls = ssl.create_default_context() if self.secure else None
        return Address(str(place[0]), self.port, tls, self.host)


def check_server(base_url: str) -> ServerInfo:
    """The models that a running server lists.

    Raises:
        BadRequest: the URL is wrong, the key is refused, or it is no OpenAI-compatible server.
        EngineUnavailable: nothing listens there, or it does not answer.
    """
    url = BaseUrl.parse(base_url)
    status, body = request(url, "GET", "/v1/models", None, _TIMEOUT_S)
    if status != 200:
        raise refused(url, status, body, "/v1/models")
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        raise BadRequest(f"{url.shown} lists no models", "is it an OpenAI-compatible server?")
    entries = [e for e in data if isinstance(e, dict) and e.get("id")]
    lengths = {str(e["id"]): e["max_model_len"] for e in entries if isinstance(e.get("max_model_len"), int)}
    return ServerInfo(tuple(str(e["id"]) for e in entries), lengths)


def choose_model(info: ServerInfo, wanted: str | None, base_url: str) -> str:
    """The model to ask for: `wanted`, or the only one that is served.

    Raises:
        BadRequest: it is not served, or the choice is open.
    """
    served = ", ".join(info.models[:_SHOWN]) + (", …" if len(info.models) > _SHOWN else "")
    if wanted is None and len(info.models) == 1:
        return info.models[0]
    if wanted is None and not info.models:
        raise BadRequest(f"{base_url} lists no models", "name the one that it serves with --model")
    if wanted is None:
        raise BadRequest(f"{base_url} serves several models", f"name one with --model: {served}")
    if info.models and wanted not in info.models:
        raise BadRequest(f"{base_url} does not serve {wanted!r}", f"it serves {served}")
    return wanted


def read_metrics(base_url: str) -> str:
    """The text of /metrics; empty where the server has none."""
    url = BaseUrl.parse(base_url)
    try:
        status, body = request(url, "GET", "/metrics", None, _TIMEOUT_S)
    except (BadRequest, EngineUnavailable):
        return ""
    return body if status == 200 and isinstance(body, str) else ""


def reset_prefix_cache(base_url: str) -> bool:
    """Ask the server to empty its prefix cache; whether it did. vLLM has this in its development mode."""
    url = BaseUrl.parse(base_url)
    try:
        status, body = request(url, "POST", "/reset_prefix_cache", None, _TIMEOUT_S)
    except (BadRequest, EngineUnavailable):
        return False
    return status == 200 and not (isinstance(body, dict) and body.get("success") is False)


def request(url: BaseUrl, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, Any]:
    """Status and body (JSON where it is) of one short request.

    Raises:
        BadRequest, EngineUnavailable: it was not answered.
    """
    # its import takes as long as the rest of the package, and most commands ask no server
    import aiohttp

    try:
        status, raw = asyncio.run(_fetch(url, method, path, body, timeout_s))
    except TimeoutError as error:
        raise EngineUnavailable(f"{url.shown} does not answer within {timeout_s:.0f} s") from error
    except aiohttp.ClientConnectorDNSError as error:
        raise BadRequest(f"{url.shown}: no such host", "check the URL") from error
    except aiohttp.ClientSSLError as error:
        raise BadRequest(f"{url.shown}: TLS failed", "is it http://, or not trusted?") from error
    except aiohttp.ClientConnectorError as error:
        raise EngineUnavailable(f"nothing listens at {url.shown}", "is the server up?") from error
    except (aiohttp.ClientError, OSError) as error:
        reason = type(error).__name__
        raise EngineUnavailable(f"{url.shown} cannot be reached ({reason})", "check the URL") from error
    try:
        return status, orjson.loads(raw)
    except orjson.JSONDecodeError:
        return status, raw.decode("utf-8", "replace")


async def _fetch(url: BaseUrl, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
    import aiohttp

    headers = {"Content-Type": "application/json"}
    if key := api_key():
        headers["Authorization"] = f"Bearer {key}"
    target = f"{url.shown}{path}"
    data = orjson.dumps(body) if body is not None else None
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    trusted = ssl.create_default_context() if url.secure else True
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, target, data=data, headers=headers, ssl=trusted) as response,
    ):
        return response.status, await response.read()


def refused(url: BaseUrl, status: int, body: Any, path: str) -> BadRequest | EngineUnavailable:
    """The error for an answer other than 200."""
    if status in (401, 403):
        return BadRequest(
            f"{url.shown} refuses the key (HTTP {status})", f"set {KEY_VARIABLES[1]} to the server's key"
        )
    said = f"HTTP {status} ({error_text(body)})" if body else f"HTTP {status}"
    if status >= 500:
        return EngineUnavailable(f"{url.shown}{path} answers {said}", "is the server healthy?")
    if status == 404:
        return BadRequest(
            f"{url.shown}{path} answers {said}", "give the URL in front of /v1, and a model that is served"
        )
    return BadRequest(f"{url.shown}{path} answers {said}")
