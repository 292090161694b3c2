"""The mock server's side of the wire: connections, streamed answers, and the faults that they meet."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from tuner.replay.mock import MockServer

clock = time.perf_counter


class Fault(StrEnum):
    """What a request meets."""

    NONE = "none"
    ROLE_FIRST = "role_first"
    """A chunk with the role alone comes at once, long before the first token."""
    REASONING = "reasoning"
    """Every token is reasoning."""
    FOUR_A_CHUNK = "four_a_chunk"
    NO_USAGE = "no_usage"
    ERROR_EVENT = "error_event"
    """An error event after ten tokens of a stream that began with 200."""
    RESET = "reset"
    """The connection is reset after ten tokens."""
    RESET_AT_ONCE = "reset_at_once"
    STALL = "stall"
    """Nothing more after ten tokens."""
    TOO_MANY_REQUESTS = "429"
    UNAVAILABLE = "503"
    BAD_REQUEST = "400"
    SPLIT_UTF8 = "split_utf8"
    """Characters of several bytes, cut inside, in writes of their own."""
    CRLF = "crlf"
    SLOW_HEADERS = "slow_headers"
    """The head of the response comes 50 ms late and in two pieces."""
    SHORT = "short"
    """One token fewer than asked."""
    WRONG_COUNT = "wrong_count"
    """Usage says three tokens more than came."""
    NO_FINISH = "no_finish"
    COMMENTS = "comments"
    CLOSES_SILENTLY = "closes_silently"
    """The connection is closed after the answer, without having said so."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How the server serves: seconds to the first token and between tokens; `slots` requests at a time.

    Without slots every request has the server to itself; with them the others wait in line, so that a load
    above slots / (ttft_s + (tokens - 1) x tpot_s) overloads it.
    """

    ttft_s: float = 0.02
    tpot_s: float = 0.005
    slots: int | None = None


@dataclass(slots=True)
class Served:
    """One line of the server's own log; times by the clock of the machine, NaN where it did not happen."""

    name: str
    path: str
    prompt_tokens: int
    max_tokens: int
    fault: str
    t_received: float
    t_first: float = float("nan")
    t_last: float = float("nan")
    tokens: int = 0
    ended: bool = False
    prompt: Any = field(default=None, repr=False)


class Peer(asyncio.Protocol):
    """One connection; requests on it are served one after the other."""

    def __init__(self, server: MockServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self.loop = server, loop
        self.buffer = b""
        self.need = 0
        self.busy: _Stream | None = None
        self.idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.server.connections += 1
        self.server.peers.add(self.transport)
        self.rest()

    def connection_lost(self, error: Exception | None) -> None:
        self.server.peers.discard(self.transport)
        if self.idle is not None:
            self.idle.cancel()
        if self.busy is not None:
            self.busy.gone()

    def data_received(self, data: bytes) -> None:
        now = clock()
        self.buffer = self.buffer + data if self.buffer else data
        if len(self.buffer) < self.need:
            return
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lines = self.buffer[:end].split(b"\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in lines[1:])}
        self.need = end + 4 + int(headers.get(b"content-length", b"0"))
        if len(self.buffer) < self.need:
            return
        body, self.buffer, self.need = self.buffer[end + 4 : self.need], self.buffer[self.need :], 0
        if self.idle is not None:
            self.idle.cancel()
        method, path, _ = lines[0].decode().split(" ", 2)
        self.route(method, path, headers, body, now)

    def rest(self) -> None:
        """Wait for the next request, not for ever where the server closes idle connections."""
        self.busy = None
        if self.server.keep_alive_s is not None:
            self.idle = self.loop.call_later(self.server.keep_alive_s, self.transport.close)

    def reply(self, status: int, value: Any) -> None:
        """A plain answer."""
        body = value.encode() if isinstance(value, str) else orjson.dumps(value)
        kind = "text/plain" if isinstance(value, str) else "application/json"
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.rest()

    def route(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes, now: float) -> None:
        server = self.server
        if path == "/health":
            self.reply(200, "")
        elif path == "/metrics":
            self.reply(200, server.metrics())
        elif path == "/mock/log":
            self.reply(200, [asdict(served) for served in server.log])
        elif server.key and headers.get(b"authorization") != b"Bearer " + server.key.encode():
            self.reply(401, _error("a key is needed"))
        elif path == "/v1/models":
            entry = {"id": server.model, "object": "model", "max_model_len": server.max_model_len}
            self.reply(200, {"object": "list", "data": [entry]})
        elif method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            self.generate(path, headers, body, now)
        else:
            self.reply(404, _error("Not Found"))

    def generate(self, path: str, headers: dict[bytes, bytes], body: bytes, now: float) -> None:
        server = self.server
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError:
            self.reply(400, _error("the body is not JSON"))
            return
        if asked.get("model") != server.model:
            self.reply(404, _error(f"The model `{asked.get('model')}` does not exist."))
            return
        chat = path.endswith("/chat/completions")
        prompt = asked.get("messages") if chat else asked.get("prompt")
        if not chat and isinstance(prompt, list) and server.text_only:
            self.reply(422, _error("prompt must be text"))
            return
        count = self.count(prompt, chat)
        wanted = int(asked.get("max_tokens", 16))
        if count + wanted > server.max_model_len:
            self.reply(400, _error(f"maximum context length is {server.max_model_len} tokens"))
            return
        if not asked.get("stream"):
            usage = {"prompt_tokens": count, "completion_tokens": wanted}
            self.reply(200, {"choices": [_choice(chat, "x" * wanted, "length")], "usage": usage})
            return
        fault = server.next_fault()
        name = headers.get(b"x-request-id", b"").decode()
        served = Served(name, path, count, wanted, fault.value, now)
        if server.keep_prompts:
            served.prompt = prompt
        server.log.append(served)
        self.busy = _Stream(self, served, chat, fault)

    def count(self, prompt: Any, chat: bool) -> int:
        """Tokens of a prompt: ids as they are, words by the server's own tokenizer."""
        if chat:
            words = sum(len(str(m.get("content", "")).split()) for m in prompt or [] if isinstance(m, dict))
            return self.server.template_tokens + round(words * self.server.tokens_a_word)
        return len(prompt) if isinstance(prompt, list) else len(str(prompt).split())


class _Stream:
    """One streamed answer. Tokens leave at absolute times, so that the pace does not drift."""

    def __init__(self, peer: Peer, served: Served, chat: bool, fault: Fault) -> None:
        self.peer, self.served, self.chat, self.fault = peer, served, chat, fault
        self.server, self.loop, self.transport = peer.server, peer.loop, peer.transport
        self.timer: asyncio.TimerHandle | None = None
        self.holds_slot = self.over = False
        self.begun = 0.0
        self.sent = 0
        self.step = 4 if fault is Fault.FOUR_A_CHUNK else 1
        self.total = served.max_tokens - (1 if fault is Fault.SHORT else 0)
        self.end = b"\r\n\r\n" if fault is Fault.CRLF else b"\n\n"
        self.speaks_chat = chat or fault in (Fault.REASONING, Fault.ROLE_FIRST)
        # most tokens are the same bytes on the wire
        self.chunk = self._event({"choices": [self._token("a" * self.step)], "usage": None})
        self.wire = b"%x\r\n%b\r\n" % (len(self.chunk), self.chunk)
        refusals = {Fault.TOO_MANY_REQUESTS: 429, Fault.UNAVAILABLE: 503, Fault.BAD_REQUEST: 400}
        if fault in refusals:
            self.over = True
            peer.reply(refusals[fault], _error(f"refused with {refusals[fault]}"))
        elif fault is Fault.RESET_AT_ONCE:
            self.over = True
            self.transport.abort()
        else:
            self.server.admit(self.begin)

    def begin(self) -> None:
        """A slot is free."""
        self.holds_slot = True
        if self.over:
            self.finish()
            return
        self.begun = clock()
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        if self.fault is Fault.SLOW_HEADERS:
            self.transport.write(head[:30])
            self.timer = self.loop.call_later(0.05, self._begun, head[30:])
        else:
            self._begun(head)

    def _begun(self, head: bytes) -> None:
        self.transport.write(head)
        if self.chat or self.fault is Fault.ROLE_FIRST:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            self._write(self._event({"choices": [role]}))
        self._arm()

    def _arm(self) -> None:
        timing = self.server.timing
        later = timing.ttft_s + (self.sent + self.step - 1 if self.sent else 0) * timing.tpot_s
        self.timer = self.loop.call_later(max(0.0, self.begun + later - clock()), self.next)

    def next(self) -> None:
        """The next token, or what the fault has instead."""
        if self.over:
            return
        if self.sent >= 10 and self.fault in (Fault.ERROR_EVENT, Fault.RESET, Fault.STALL):
            if self.fault is Fault.ERROR_EVENT:
                self._write(self._event(_error("the engine failed")))
                self._close(b"")
            elif self.fault is Fault.RESET:
                self.transport.abort()
            return
        self.sent += min(self.step, self.total - self.sent)
        if self.fault is Fault.SPLIT_UTF8:
            event = self._event({"choices": [self._token("世界")]})
            cut = event.index("世".encode()) + 1
            self.transport.write(b"%x\r\n%b" % (len(event), event[:cut]))
            self.timer = self.loop.call_later(0.001, self._sent, event[cut:] + b"\r\n")
        elif self.fault is Fault.COMMENTS:
            comment = b": ping\n\n"
            self._sent(b"%x\r\n%b%b\r\n" % (len(comment) + len(self.chunk), comment, self.chunk))
        else:
            self._sent(self.wire)

    def _sent(self, data: bytes) -> None:
        """The last bytes of a token: now it counts."""
        served = self.served
        served.t_last = clock()
        if not served.tokens:
            served.t_first = served.t_last
        served.tokens = self.sent
        self.transport.write(data)
        if self.sent < self.total:
            self._arm()
        else:
            self.conclude()

    def conclude(self) -> None:
        """Finish reason, usage, [DONE]."""
        out = b""
        if self.fault is not Fault.NO_FINISH:
            choice = self._token("", "length")
            out += self._event({"choices": [choice]})
        if self.fault is not Fault.NO_USAGE:
            said = self.total + (3 if self.fault is Fault.WRONG_COUNT else 0)
            usage = {"prompt_tokens": self.served.prompt_tokens, "completion_tokens": said}
            out += self._event({"choices": [], "usage": usage})
        self._close(out + b"data: [DONE]" + self.end)

    def _close(self, out: bytes) -> None:
        if out:
            self._write(out)
        self.transport.write(b"0\r\n\r\n")
        self.served.ended = True
        if self.fault is Fault.CLOSES_SILENTLY:
            self.peer.busy = None
            self.transport.close()
        else:
            self.peer.rest()
        self.finish()

    def gone(self) -> None:
        """The client hung up."""
        if not self.over:
            self.finish()

    def finish(self) -> None:
        """Give the slot back, once."""
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        if self.holds_slot:
            self.holds_slot = False
            self.server.release()

    def _token(self, text: str, finish: str | None = None) -> dict[str, Any]:
        if self.speaks_chat:
            name = "reasoning_content" if self.fault is Fault.REASONING else "content"
            return {"index": 0, "delta": {name: text} if text else {}, "finish_reason": finish}
        return _choice(False, text, finish)

    def _event(self, value: Any) -> bytes:
        if "choices" in value:
            # clients that check what they read ask for the object's kind
            kind = "chat.completion.chunk" if self.speaks_chat else "text_completion"
            value = {"id": self.served.name, "object": kind, "model": self.server.model, **value}
        return b"data: " + orjson.dumps(value) + self.end

    def _write(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def _choice(chat: bool, text: str, finish: str | None) -> dict[str, Any]:
    if chat:
        return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "mock", "code": None}}
