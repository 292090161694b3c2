"""OpenAI-style request logs: one JSON object a request, with a time and the body (messages or prompt).

The body is the object itself or its `body`, `request` or `request_body`. Lengths come from `usage` (beside
the body or in `response`); without it the prompt is counted at 4 characters a token and the answer at
max_tokens. Prefix blocks come from the recorded text, 16 tokens each; a request whose messages begin with all
those of an earlier one continues its session, unless the log names sessions.
"""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import MAX_TOKENS, Columns, Head, TraceFormat
from tuner.traces.formats.jsonl import Fields, Row, RowSink, failed, rows
from tuner.traces.formats.mooncake import recorded_body
from tuner.traces.formats.texts import BLOCK_TOKENS, CHARS_A_TOKEN, Conversations, TextBlocks, prompt_text

_TIMES = ("timestamp", "time", "ts", "created", "created_at", "start_time", "arrival_time", "request_time")
_BODIES = ("body", "request", "request_body")
_SESSIONS = ("session_id", "conversation_id", "chat_id")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def _matches(head: Head) -> bool:
    row = head.json
    if row is None or "input_length" in row or "hash_ids" in row:
        return False
    body = _body_of(row)
    return "messages" in body or "prompt" in body


def _read(file: TraceFile) -> Columns:
    fields = Fields(file)
    sink = RowSink(fields)
    blocks, conversations = TextBlocks(), Conversations()
    estimated_in = estimated_out = 0
    for line, row in rows(file):
        body = _body_of(row)
        if failed(row):
            sink.failed += 1
            continue
        recorded = recorded_body(fields, body, line)
        if recorded is None:
            raise fields.wrong(line, "messages", "is missing, and so is prompt")
        usage = _usage(row, body)
        try:
            text, conversation = prompt_text(recorded), conversations.follow(recorded)
        except orjson.JSONEncodeError:
            raise fields.wrong(line, "messages", "is nested too deeply") from None
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
        given = next((name for name in _SESSIONS if row.get(name) is not None), None)
        sink.session(row[given] if given else conversation, line, given or "messages")
        sink.body(recorded)
    columns = sink.columns()
    if len(sink):
        columns.block_tokens = BLOCK_TOKENS
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


OPENAI_LOG = TraceFormat("openai-log", "OpenAI-style request log JSONL", _matches, _read)
