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
from tuner.replay.options import KEY_VARIABLES, Endpoint, api_key
from tuner.replay.pool import Address
from tuner.replay.prompts import TextScale, drawn_words

_TIMEOUT_S = 20.0
_PROBE_TIMEOUT_S = 120.0
_PROBE_IDS = (100, 200, 300, 400, 500, 600, 700, 800)
_PROBE_WORDS = (40, 240)
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
    status, body = _request(url, "GET", "/v1/models", None, _TIMEOUT_S)
    if status != 200:
        raise _refused(url, status, body, "/v1/models")
    data = body.get("data") if isinstance(body, dict) else None
    entries = [e for e in data if isinstance(e, dict) and e.get("id")] if isinstance(data, list) else []
    if not entries:
        raise BadRequest(f"{url.shown} lists no models", "is it an OpenAI-compatible server?")
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
    if wanted is None:
        raise BadRequest(f"{base_url} serves several models", f"name one with --model: {served}")
    if wanted not in info.models:
        raise BadRequest(f"{base_url} does not serve {wanted!r}", f"it serves {served}")
    return wanted


def probe_endpoint(base_url: str, model: str) -> Endpoint:
    """Whether the server takes token ids at /v1/completions and counts them as we do, else chat.

    Raises:
        BadRequest, EngineUnavailable: neither works.
    """
    url = BaseUrl.parse(base_url)
    body = {"model": model, "prompt": list(_PROBE_IDS), "max_tokens": 1, "temperature": 0}
    status, answer = _request(url, "POST", "/v1/completions", body, _PROBE_TIMEOUT_S)
    if status in (401, 403):
        raise _refused(url, status, answer, "/v1/completions")
    counted = _prompt_tokens(answer)
    if status == 200 and (counted is None or abs(counted - len(_PROBE_IDS)) <= 1):
        return Endpoint.COMPLETIONS
    status, answer = _chat(url, model, _PROBE_WORDS[0])
    if status != 200:
        raise _refused(url, status, answer, "/v1/chat/completions")
    return Endpoint.CHAT


def measure_text(base_url: str, model: str) -> TextScale:
    """How the server counts drawn words in a chat, by its own usage; one token a word where it says nothing.

    Raises:
        BadRequest, EngineUnavailable: it does not answer.
    """
    url = BaseUrl.parse(base_url)
    counts = []
    for words in _PROBE_WORDS:
        status, answer = _chat(url, model, words)
        if status != 200:
            raise _refused(url, status, answer, "/v1/chat/completions")
        counts.append(_prompt_tokens(answer))
    few, many = counts
    if few is None or many is None or many <= few:
        return TextScale()
    per_word = (many - few) / (_PROBE_WORDS[1] - _PROBE_WORDS[0])
    return TextScale(overhead=few - per_word * _PROBE_WORDS[0], per_word=per_word)


def read_metrics(base_url: str) -> str:
    """The text of /metrics; empty where the server has none."""
    url = BaseUrl.parse(base_url)
    try:
        status, body = _request(url, "GET", "/metrics", None, _TIMEOUT_S)
    except (BadRequest, EngineUnavailable):
        return ""
    return body if status == 200 and isinstance(body, str) else ""


def reset_prefix_cache(base_url: str) -> bool:
    """Ask the server to empty its prefix cache; whether it did. vLLM has this in its development mode."""
    url = BaseUrl.parse(base_url)
    try:
        status, body = _request(url, "POST", "/reset_prefix_cache", None, _TIMEOUT_S)
    except (BadRequest, EngineUnavailable):
        return False
    return status == 200 and not (isinstance(body, dict) and body.get("success") is False)


def _chat(url: BaseUrl, model: str, words: int) -> tuple[int, Any]:
    content = drawn_words(words, seed=words)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 1,
        "temperature": 0,
    }
    return _request(url, "POST", "/v1/chat/completions", body, _PROBE_TIMEOUT_S)


def _prompt_tokens(answer: Any) -> int | None:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) else None


def _request(url: BaseUrl, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, Any]:
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


def _refused(url: BaseUrl, status: int, body: Any, path: str) -> BadRequest | EngineUnavailable:
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
