"""Prompts of exact length that share exactly what the trace says they share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tuner.replay.options import ClientOptions
from tuner.traces.trace import Trace

U16 = NDArray[np.uint16]

_CACHED_TOKENS = 1 << 25

# common words that most tokenizers keep in one piece behind a space
_WORDS = (
    b"time year people way day man thing woman life child world school state family student group country "
    b"problem hand part place case week company system program question work government number night point "
    b"home water room mother area money story fact month lot right study book eye job word business issue "
    b"side kind head house service friend father power hour game line end member"
).split()


@dataclass(frozen=True, slots=True)
class TextScale:
    """How many tokens a server counts for a chat of drawn words: `overhead` + `per_word` x words."""

    overhead: float = 0.0
    per_word: float = 1.0

    def words(self, tokens: int, *, whole: bool = True) -> int:
        """Words for so many tokens; `whole`: of the complete prompt, template included."""
        return max(1 if whole else 0, round((tokens - (self.overhead if whole else 0.0)) / self.per_word))


def drawn_words(count: int, *, seed: int = 0) -> str:
    """A text of so many common words."""
    picks = np.random.default_rng(seed).integers(0, len(_WORDS), count)
    return b" ".join(_WORDS[i] for i in picks.tolist()).decode()


class Prompts:
    """Token ids for every request of a trace, the same in every process for the same seed and trace.

    A block's ids come from sha256(seed, trace digest, block id), stretched by SHAKE-128, so that equal block
    ids are equal tokens; what lies behind the blocks is drawn for the request alone. Another seed shares no
    prefix with this one, which is how one replay is kept off another's prefix cache.
    """

    def __init__(self, trace: Trace, *, seed: int = 0, low: int = 10, high: int = 4000) -> None:
        if not 0 <= low < high <= 65_536:
            raise ValueError(f"token ids from {low} to {high} are no range below 65,536")
        self._trace = trace
        self._low, self._span = low, high - low
        self._key = f"{seed}:{trace.digest()}".encode()
        self._blocks: dict[int, U16] = {}

    def tokens(self, index: int) -> U16:
        """The prompt of one request."""
        self._draw_blocks([block for block, _ in self.layout(index)])
        parts = [self.block(block)[:length] for block, length in self.layout(index)]
        return np.concatenate([*parts, self.tail(index)])

    def layout(self, index: int) -> list[tuple[int, int]]:
        """The blocks of a request's prompt and how many tokens of each it holds."""
        left = int(self._trace.input_tokens[index])
        size = self._trace.block_tokens
        out = []
        for block in self._trace.blocks_of(index).tolist():
            if left <= 0:
                break
            out.append((block, min(size, left)))
            left -= size
        return out

    def block(self, block: int) -> U16:
        """The tokens of one block, in full."""
        if block not in self._blocks:
            self._draw_blocks([block])
        return self._blocks[block]

    def tail(self, index: int) -> U16:
        """The tokens that only this request has, behind its blocks."""
        shared = sum(length for _, length in self.layout(index))
        return self._draw(f"request {index}", int(self._trace.input_tokens[index]) - shared)

    def _draw_blocks(self, wanted: list[int]) -> None:
        """Draw what is missing in one go: numpy's cost a call is most of the cost of a block."""
        size = self._trace.block_tokens
        if len(self._blocks) * size > _CACHED_TOKENS:
            self._blocks.clear()
        missing = list(dict.fromkeys(block for block in wanted if block not in self._blocks))
        if missing:
            drawn = self._ids(b"".join(self._raw(f"block {block}", size) for block in missing))
            self._blocks.update(zip(missing, drawn.reshape(len(missing), size), strict=True))

    def _draw(self, name: str, count: int) -> U16:
        return self._ids(self._raw(name, max(count, 0)))

    def _raw(self, name: str, count: int) -> bytes:
        digest = hashlib.sha256(self._key + b":" + name.encode()).digest()
        return hashlib.shake_128(digest).digest(4 * count)

    def _ids(self, raw: bytes) -> U16:
        return (self._low + np.frombuffer(raw, dtype="<u4") % self._span).astype(np.uint16)


class Lengths(Enum):
    """How well a prompt's token count is known beforehand."""

    EXACT = "token ids"
    ESTIMATED = "drawn words, counted by the server's own usage"
    UNKNOWN = "recorded text"


def lengths_of(trace: Trace, chat: TextScale | None) -> Lengths:
    """How well the token counts of a trace's prompts are known."""
    if trace.bodies is not None:
        return Lengths.UNKNOWN
    return Lengths.EXACT if chat is None else Lengths.ESTIMATED


class Bodies:
    """Request paths and JSON bodies, built at once where they fit in memory, else just ahead of their use.

    `only` names the requests that this process sends.
    """

    def __init__(
        self,
        trace: Trace,
        model: str,
        options: ClientOptions,
        *,
        seed: int = 0,
        chat: TextScale | None = None,
        only: Iterable[int] | None = None,
    ) -> None:
        self._trace, self._chat, self._options = trace, chat, options
        self._prompts = Prompts(trace, seed=seed, low=options.token_low, high=options.token_high)
        self._head = _head(model, options)
        self._fragments: dict[tuple[int, int], bytes] = {}
        bytes_a_token = 5.0
        own = range(len(trace)) if only is None else list(only)
        total = bytes_a_token * float(trace.input_tokens[own].sum(dtype=np.int64)) if len(own) else 0.0
        self._keep = total <= options.body_memory_mib * 2**20
        self._built: list[tuple[bytes, bytes] | None] = [None] * len(trace)
        if self._keep:
            for index in own:
                self.prepare(index)
            self._fragments.clear()

    def prepare(self, index: int) -> None:
        """Build one body before its time comes."""
        if index < len(self._built) and self._built[index] is None:
            self._built[index] = self._build(index)

    def take(self, index: int) -> tuple[bytes, bytes]:
        """Path and body of one request; forgotten afterwards where memory is short."""
        self.prepare(index)
        built = self._built[index]
        assert built is not None
        if not self._keep:
            self._built[index] = None
        return built

    def _build(self, index: int) -> tuple[bytes, bytes]:
        output = b'"max_tokens":%d,' % int(self._trace.output_tokens[index])
        if self._options.min_tokens:
            output += b'"min_tokens":%d,' % int(self._trace.output_tokens[index])
        recorded = self._trace.bodies[index] if self._trace.bodies is not None else None
        if recorded is not None:
            path, prompt = _recorded(recorded)
        elif self._chat is not None:
            path = b"/chat/completions"
            prompt = b'"messages":[{"role":"user","content":"%b"}]' % self._text(index, self._chat)
        else:
            path, prompt = b"/completions", b'"prompt":[%b]' % self._ids(index)
        return path, b"{" + self._head + output + prompt + b"}"

    def _ids(self, index: int) -> bytes:
        if not self._keep:
            return _commas(self._prompts.tokens(index))
        parts = []
        for block, length in self._prompts.layout(index):
            fragment = self._fragments.get((block, length))
            if fragment is None:
                fragment = self._fragments[block, length] = _commas(self._prompts.block(block)[:length])
            parts.append(fragment)
        tail = self._prompts.tail(index)
        if len(tail):
            parts.append(_commas(tail))
        return b",".join(parts)

    def _text(self, index: int, scale: TextScale) -> bytes:
        words = []
        left = scale.words(int(self._trace.input_tokens[index]))
        for block, length in self._prompts.layout(index):
            count = min(scale.words(length, whole=False), left)
            words.extend(_words(self._prompts.block(block), count))
            left -= count
        if left > 0:
            drawn = self._prompts.tail(index)
            words.extend(_words(drawn if len(drawn) else self._prompts.block(-1 - index), left))
        return b" ".join(words)


def _head(model: str, options: ClientOptions) -> bytes:
    fields: dict[str, Any] = {
        "model": model,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if options.ignore_eos:
        fields["ignore_eos"] = True
    return orjson.dumps(fields)[1:-1] + b","


def _commas(tokens: U16) -> bytes:
    return orjson.dumps(np.ascontiguousarray(tokens), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def _words(tokens: U16, count: int) -> list[bytes]:
    picks = np.resize(tokens, count) % len(_WORDS)
    return [_WORDS[i] for i in picks.tolist()]


def _recorded(body: Any) -> tuple[bytes, bytes]:
    """Path and prompt field of a recorded body: messages, a prompt, or an object that holds one of them."""
    if isinstance(body, dict):
        body = body.get("messages") or body.get("prompt") or ""
    if isinstance(body, list) and body and isinstance(body[0], dict):
        return b"/chat/completions", b'"messages":' + orjson.dumps(body)
    return b"/completions", b'"prompt":' + orjson.dumps(body)
