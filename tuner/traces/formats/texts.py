"""Recorded texts as traces need them: blocks of the prefix, and the conversations that they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

CHARS_A_TOKEN = 4
BLOCK_TOKENS = 16


def prompt_text(recorded: Any) -> str | list[int]:
    """What the model reads of a prompt or of messages, roles included, so that equal starts are equal; token
    ids stay as they are.
    """
    if isinstance(recorded, str):
        return recorded
    if isinstance(recorded[0], int):
        return list(recorded)
    return "".join(_message_text(message) for message in recorded)


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = "".join(part for part in parts if isinstance(part, str))
    calls = message.get("tool_calls")
    shown = orjson.dumps(calls).decode() if calls else ""
    return f"{message.get('role', '')}\n{content if isinstance(content, str) else ''}{shown}\n"


class TextBlocks:
    """Numbers for the blocks of texts: equal numbers for equal text behind equal text."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def ids(self, text: str | list[int], tokens: int) -> list[int]:
        """ceil(tokens / 16) block numbers, as many from the text as it has, new ones beyond it."""
        count = -(-tokens // BLOCK_TOKENS)
        ids: list[int] = []
        for key in self._prefix_keys(text):
            if len(ids) == count:
                break
            ids.append(self._known.setdefault(key, len(self._known)))
        while len(ids) < count:
            key = len(self._known).to_bytes(8, "big")
            ids.append(self._known.setdefault(key, len(self._known)))
        return ids

    @staticmethod
    def _prefix_keys(text: str | list[int]) -> Iterator[bytes]:
        """A digest of the text up to each block's end."""
        step = BLOCK_TOKENS * (CHARS_A_TOKEN if isinstance(text, str) else 1)
        running = hashlib.blake2b(digest_size=16)
        for start in range(0, len(text), step):
            piece = text[start : start + step]
            data = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else orjson.dumps(piece)
            running.update(data)
            running.update(b"\x00" if len(piece) == step else b"\x01")
            yield running.digest()


class Conversations:
    """Numbers for conversations: a request whose messages begin with all those of an earlier request, and go
    on, belongs to that one's. With `limit` so many of the latest are remembered.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._ends: dict[bytes, int] = {}
        self._count = 0

    def follow(self, recorded: Any) -> int:
        """The conversation of a request; a prompt that is no list of messages is one of its own."""
        found, end = -1, b""
        if isinstance(recorded, list) and isinstance(recorded[0], dict):
            running = hashlib.blake2b(digest_size=16)
            for message in recorded:
                found = self._ends.get(end, found)
                running.update(orjson.dumps(message, option=orjson.OPT_SORT_KEYS))
                end = running.digest()
        if found < 0:
            found = self._count
            self._count += 1
        if end:
            self._ends.pop(end, None)  # the latest come last
            self._ends[end] = found
            if self._limit is not None and len(self._ends) > self._limit:
                del self._ends[next(iter(self._ends))]
        return found
