"""OpenAI-style request logs: one JSON object a request, with a time and the body (messages or prompt).

The body is the object itself or its `body`, `request` or `request_body`. Lengths come from `usage` (beside
the body or in `response`); without it the prompt is counted at 4 characters a token and the answer at
max_tokens. Prefix blocks come from the recorded text, 16 tokens each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import MAX_TOKENS, Columns, Head, TraceFormat
from tuner.traces.formats.jsonl import Fields, Row, RowSink, rows
from tuner.traces.formats.mooncake import recorded_body

CHARS_A_TOKEN = 4
BLOCK_TOKENS = 16
_TIMES = ("timestamp", "time", "ts", "created", "created_at", "start_time", "arrival_time", "request_time")
_BODIES = ("body", "request", "request_body")
_SESSIONS = ("session_id", "conversation_id", "chat_id")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def _matches(head: Head) -> bool:
    row = head.json
    if row is None or "input_length" in row or "hash_ids" in row:
        return False
    body = _body_of(row)
    return ("messages" in body or "prompt" in body) and any(name in row for name in _TIMES)


def _read(file: TraceFile) -> Columns:
    fields = Fields(file)
    sink = RowSink(fields)
    blocks = _TextBlocks()
    estimated_in = estimated_out = 0
    for line, row in rows(file):
        body = _body_of(row)
        if _failed(row):
            sink.failed += 1
            continue
        recorded = recorded_body(fields, body, line)
        if recorded is None:
            raise fields.wrong(line, "messages", "is missing, and so is prompt")
        usage = _usage(row, body)
        text = recorded if isinstance(recorded, list) and isinstance(recorded[0], int) else _text(recorded)
        if usage.get("prompt_tokens") is not None:
            inputs = fields.tokens(usage, "prompt_tokens", line)
        elif isinstance(text, list):
            inputs = len(text)
        else:
            inputs = min(-(-len(text) // CHARS_A_TOKEN), MAX_TOKENS)
            estimated_in += 1
        if usage.get("completion_tokens") is not None:
            outputs = fields.tokens(usage, "completion_tokens", line)
        else:
            limit = next((name for name in _LIMITS if body.get(name) is not None), "max_tokens")
            outputs = fields.tokens(body, limit, line)
            estimated_out += 1
        sink.add(line, _time_ns(fields, row, line), inputs, outputs)
        sink.blocks(blocks.ids(text, inputs), line, "prompt")
        sink.session(next((row[name] for name in _SESSIONS if row.get(name) is not None), None), line)
        sink.body(recorded)
    columns = sink.columns()
    if len(sink):
        columns.block_tokens = BLOCK_TOKENS
        columns.chain_sessions = columns.session is None
    if estimated_in:
        columns.notes.append(f"{estimated_in:,} prompts counted at {CHARS_A_TOKEN} characters a token")
    if estimated_out:
        columns.notes.append(f"{estimated_out:,} answers taken as long as max_tokens allows")
    return columns


def _body_of(row: Row) -> Row:
    for name in _BODIES:
        body = row.get(name)
        if isinstance(body, dict):
            return body
    return row


def _failed(row: Row) -> bool:
    status = row.get("status_code", row.get("status"))
    return bool(row.get("error")) or (type(status) is int and status >= 400)


def _usage(row: Row, body: Row) -> Row:
    response = row.get("response")
    inner = response.get("body", response) if isinstance(response, dict) else None
    for holder in (row, inner, response, body):
        usage = holder.get("usage") if isinstance(holder, dict) else None
        if isinstance(usage, dict):
            return usage
    return {}


def _time_ns(fields: Fields, row: Row, line: int) -> int:
    """A time in seconds, milliseconds, microseconds or nanoseconds of the epoch (told by its size), or ISO
    8601.
    """
    name = next((name for name in _TIMES if row.get(name) is not None), None)
    if name is None:
        raise fields.wrong(line, "timestamp", "is missing")
    value = row[name]
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return fields.time_ns(row, name, line, 1)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        try:
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        except OverflowError:
            raise fields.wrong(line, name, "is out of the range of times") from None
        return fields.scaled_ns(
            (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds, name, line, 10**6
        )
    per_second = 1
    if isinstance(value, int | float):
        for limit, unit in ((1e17, 10**9), (1e14, 10**6), (1e11, 10**3)):
            if abs(value) >= limit:
                per_second = unit
                break
    return fields.scaled_ns(value, name, line, per_second)


def _text(recorded: Any) -> str:
    """What the model reads of a prompt or of messages, roles included, so that equal starts are equal."""
    if isinstance(recorded, str):
        return recorded
    return "".join(_message_text(message) for message in recorded)


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = "".join(part for part in parts if isinstance(part, str))
    calls = message.get("tool_calls")
    shown = orjson.dumps(calls).decode() if calls else ""
    return f"{message.get('role', '')}\n{content if isinstance(content, str) else ''}{shown}\n"


class _TextBlocks:
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


OPENAI_LOG = TraceFormat("openai-log", "OpenAI-style request log JSONL", _matches, _read)
