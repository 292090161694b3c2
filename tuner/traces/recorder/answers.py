"""What an answer's bytes say about lengths, read once it has ended: nothing is parsed while it streams."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_TAIL = 4096
_WINDOW_BITS = {"gzip": 47, "x-gzip": 47, "deflate": 47}


@dataclass(frozen=True, slots=True)
class Answered:
    """Tokens by the server's own usage (None where it says nothing), chunks that carried tokens, and what
    went wrong (never the server's own words: they may quote a key or the prompt).
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    chunks: int = 0
    error: str = ""


def read_answer(raw: bytes, content_type: str, encoding: str) -> Answered:
    """What a complete body with status 200 says."""
    plain = _unpacked(raw, encoding)
    if plain is None:
        return Answered(error=f"the answer is compressed ({encoding[:20]})")
    if content_type.startswith("text/event-stream"):
        return _stream(plain)
    value = _loads(plain)
    if value is None:
        return Answered(error="the answer is not a JSON object")
    prompt, output = _usage(value)
    return Answered(prompt, output, _chunks(value), _fault(value))


def _stream(raw: bytes) -> Answered:
    # a usage event is one of the last; with it nothing needs to be counted, and other streams wait meanwhile
    at = raw.rfind(b'"usage"', -_TAIL)
    prompt, output = _usage_in(_payloads(_line_around(raw, at))) if at >= 0 else (None, None)
    if output is not None and b'"error"' not in raw:
        return Answered(prompt, output)
    payloads = list(_payloads(raw))
    if output is None:
        prompt, output = _usage_in(payloads)
    chunks, error = 0, ""
    for payload in payloads:
        if output is not None and b'"error"' not in payload:
            continue
        value = _loads(payload)
        if value is not None:
            error = error or _fault(value)
            chunks += _chunks(value)
    return Answered(prompt, output, chunks, error)


def _line_around(raw: bytes, at: int) -> bytes:
    end = raw.find(b"\n", at)
    return raw[raw.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(raw)]


def _usage_in(payloads: Iterable[bytes]) -> tuple[int | None, int | None]:
    """The last usage among these events."""
    for payload in reversed(list(payloads)):
        if b'"usage"' in payload:
            prompt, output = _usage(_loads(payload) or {})
            if output is not None:
                return prompt, output
    return None, None


def _payloads(raw: bytes) -> Iterator[bytes]:
    """The data lines of an event stream; every server known puts one event's JSON on one line."""
    for line in raw.replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _loads(payload: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _usage(value: dict[str, Any]) -> tuple[int | None, int | None]:
    usage = value.get("usage")
    if not isinstance(usage, dict):
        return None, None
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return (
        prompt if type(prompt) is int and prompt >= 0 else None,
        output if type(output) is int and output >= 0 else None,
    )


def _fault(value: dict[str, Any]) -> str:
    if value.get("error") or value.get("object") == "error":
        return "an error in the answer"
    return ""


def _chunks(value: dict[str, Any]) -> int:
    """Choices of one event that carry tokens."""
    choices = value.get("choices")
    return sum(_carries(choice) for choice in choices) if isinstance(choices, list) else 0


def _carries(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    if isinstance(choice.get("text"), str):
        return bool(choice["text"]) or choice.get("finish_reason") is None
    delta = choice.get("delta") or choice.get("message")
    return isinstance(delta, dict) and any(delta.get(name) for name in (*_TEXTS, "tool_calls"))


def _unpacked(raw: bytes, encoding: str) -> bytes | None:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return raw
    if name not in _WINDOW_BITS:
        return None
    try:
        return zlib.decompressobj(_WINDOW_BITS[name]).decompress(raw)
    except zlib.error:
        return None
