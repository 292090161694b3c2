"""What a generation request asks, as far as a trace needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tuner.traces.formats.texts import CHARS_A_TOKEN, prompt_text

_SESSION_HEADERS = ("x-session-id", "x-conversation-id")
_SESSION_FIELDS = ("session_id", "conversation_id", "chat_id")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: `text` is what its blocks are made of (token ids, or the text that the model reads),
    `recorded` the messages or the prompt as they came.
    """

    text: str | list[int]
    recorded: Any

    @property
    def tokens(self) -> int:
        """Tokens by our own count: exact for ids, 4 characters a token for text."""
        return len(self.text) if isinstance(self.text, list) else -(-len(self.text) // CHARS_A_TOKEN)

    @property
    def exact(self) -> bool:
        """Whether `tokens` is exact."""
        return isinstance(self.text, list)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its prompts (several in a batch), answers to each, and the session where it is named."""

    prompts: tuple[Prompt, ...]
    answers: int
    session: str | None


def is_generation(method: str, path: str) -> bool:
    """Whether a request generates text and so belongs into a trace."""
    return method == "POST" and path.rstrip("/").endswith(("/v1/completions", "/v1/chat/completions"))


def read_request(body: bytes, headers: Mapping[str, str]) -> Asked | None:
    """What is asked, or None where it cannot be told."""
    try:
        value = orjson.loads(body)
        if not isinstance(value, dict):
            return None
        prompts = tuple(_prompts(value))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, TypeError, OverflowError):
        return None
    if not prompts:
        return None
    answers = value.get("n")
    return Asked(prompts, answers if type(answers) is int and answers > 0 else 1, _session(value, headers))


def _prompts(body: Mapping[str, Any]) -> list[Prompt]:
    messages = body.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(m, dict) for m in messages):
        # templates put the tools in front of the conversation
        tools = body.get("tools")
        shown = orjson.dumps(tools).decode() if tools else ""
        return [Prompt(shown + prompt_text(messages), messages)]  # type: ignore[operator]
    prompt = body.get("prompt")
    if isinstance(prompt, str) or _are_ids(prompt):
        return [Prompt(prompt, prompt)] if prompt else []
    if isinstance(prompt, list) and all(isinstance(one, str) or _are_ids(one) for one in prompt):
        return [Prompt(one, one) for one in prompt if one]
    return []


def _are_ids(value: Any) -> bool:
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        return False
    return not value or (min(value) >= -(1 << 63) and max(value) < 1 << 63)


def _session(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    metadata = body.get("metadata")
    places = (body, metadata if isinstance(metadata, dict) else {})
    named = [place.get(name) for place in places for name in _SESSION_FIELDS]
    named += [headers.get(name) for name in _SESSION_HEADERS]
    return next((str(name) for name in named if isinstance(name, str | int) and name != ""), None)
