"""What one streamed answer says: when its tokens came, how many there were, and how it ended."""

from __future__ import annotations

from typing import Any

import orjson

from tuner.replay.records import Status
from tuner.replay.sse import EventReader

_DELTA_TEXT = ("content", "reasoning_content", "reasoning")
_ERROR_CHARS = 80


class Answer:
    """Collects the stream of one request; times are those handed in, NaN until then.

    A chunk is a token's when it carries text, reasoning or a tool call. In /v1/completions, which has no role
    chunk, an empty text without a finish reason is a token too: vLLM sends one where a token ends inside a
    UTF-8 character.
    """

    __slots__ = (
        "_events",
        "_first_chars",
        "_first_reported",
        "chars",
        "chunks",
        "error",
        "finish_reason",
        "first_s",
        "last_s",
        "prompt_tokens",
        "usage_tokens",
    )

    def __init__(self) -> None:
        self._events = EventReader()
        self._first_chars = 0
        self._first_reported = 0
        self.chars = 0
        self.chunks = 0
        self.error = ""
        self.finish_reason: str | None = None
        self.first_s = float("nan")
        self.last_s = float("nan")
        self.prompt_tokens: int | None = None
        self.usage_tokens: int | None = None

    def feed(self, data: bytes, now_s: float) -> None:
        """Bytes of the event stream, read at `now_s`."""
        for payload, is_error in self._events.feed(data):
            self._event(payload, is_error, now_s)

    def close(self, now_s: float) -> None:
        """The stream ended."""
        for payload, is_error in self._events.close():
            self._event(payload, is_error, now_s)

    def whole(self, body: bytes, now_s: float) -> None:
        """A complete JSON answer, from a server that does not stream."""
        self._event(body, False, now_s)

    def judge(self, wanted: int, *, exact: bool) -> Status:
        """How a response that was read to its end is classed; `exact` asks for `wanted` tokens."""
        if self.error:
            return Status.STREAM_ERROR
        if self.finish_reason is None:
            self.error = "no finish reason"
            return Status.WRONG_LENGTH
        if exact and self.usage_tokens is not None and self.usage_tokens != wanted:
            self.error = "fewer tokens than asked" if self.usage_tokens < wanted else "more tokens than asked"
            return Status.WRONG_LENGTH
        if not self.chunks:
            if not self.usage_tokens:
                self.error = "no tokens"
                return Status.WRONG_LENGTH
            # every token was invisible (special tokens, say): the end is all there is to see
            self.first_s = self.last_s
        return Status.OK

    @property
    def tokens(self) -> int:
        """Tokens that the server says it generated, else one a chunk."""
        return self.chunks if self.usage_tokens is None else self.usage_tokens

    @property
    def first_tokens(self) -> int:
        """Tokens of the first chunk.

        Known where usage came with it or every token had its own chunk; else its share of the characters.
        """
        total, chunks = self.tokens, self.chunks
        if self._first_reported:
            return self._first_reported
        if chunks < 2 or not self.chars:
            return total if chunks == 1 else min(1, total)
        if total <= chunks:
            return 1
        return max(1, min(round(total * self._first_chars / self.chars), total - chunks + 1))

    def _event(self, payload: bytes, is_error: bool, now_s: float) -> None:
        if payload == b"[DONE]":
            return
        try:
            value = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self.error = self.error or ("error event" if is_error else "an event is not JSON")
            return
        if not isinstance(value, dict):
            self.error = self.error or ("error event" if is_error else "an event is not an object")
            return
        if value.get("error") or is_error or value.get("object") == "error":
            self.error = self.error or error_text(value)
            return
        choices = value.get("choices")
        if choices and isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    self._choice(choice, now_s)
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._usage(usage)

    def _choice(self, choice: dict[str, Any], now_s: float) -> None:
        finish = choice.get("finish_reason")
        text = choice.get("text")
        if isinstance(text, str):
            count, token = len(text), bool(text) or finish is None
        else:
            count = _delta_chars(choice.get("delta") or choice.get("message"))
            token = count > 0
        if token:
            self.chunks += 1
            self.chars += count
            self.last_s = now_s
            if self.chunks == 1:
                self.first_s = now_s
                self._first_chars = count
        if finish is not None:
            self.finish_reason = str(finish)
            self.last_s = now_s
            if finish == "error":
                self.error = self.error or "finish reason error"

    def _usage(self, usage: dict[str, Any]) -> None:
        completion, prompt = usage.get("completion_tokens"), usage.get("prompt_tokens")
        if isinstance(completion, int):
            self.usage_tokens = max(completion, 0)
            if self.chunks == 1 and self.finish_reason is None:
                self._first_reported = max(completion, 0)
        if isinstance(prompt, int):
            self.prompt_tokens = max(prompt, 0)


def _delta_chars(delta: Any) -> int:
    """Characters of text, reasoning and tool calls in a chat delta; 0 for a role alone."""
    if not isinstance(delta, dict):
        return 0
    count = 0
    for name in _DELTA_TEXT:
        text = delta.get(name)
        if isinstance(text, str):
            count += len(text)
            if text and name == "reasoning_content":
                break  # some servers send the same text under both names of reasoning
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            count += max(1, len(arguments) if isinstance(arguments, str) else 0)
    return count


def error_text(value: Any) -> str:
    """A short text for an error body, to count errors by."""
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message") if isinstance(error, dict) else error
    text = " ".join(str(message if message is not None else "error event").split())
    return text[:_ERROR_CHARS] or "error event"
