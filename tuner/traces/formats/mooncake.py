"""Mooncake's JSONL: timestamp in ms, input_length, output_length, hash_ids of 512 tokens each.

The same reader serves the project's own format, which adds a first line, session_id, messages and prompt.
"""

from __future__ import annotations

from typing import Any

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.jsonl import Fields, Row, RowSink, check_blocks, failed, fitting_block_size, rows

BLOCK_TOKENS = 512
_FIELDS = {"timestamp", "input_length", "output_length", "hash_ids"}


def _matches(head: Head) -> bool:
    return head.json is not None and len(_FIELDS & head.json.keys()) >= 2


def _read(file: TraceFile) -> Columns:
    fields = Fields(file)
    sink = RowSink(fields)
    with_blocks: bool | None = None
    for line, row in rows(file):
        with_blocks = read_row(fields, sink, row, line, with_blocks)
    columns = sink.columns()
    if with_blocks:
        size = fitting_block_size(sink, BLOCK_TOKENS)
        check_blocks(fields, sink, size)
        columns.block_tokens = size
        if size != BLOCK_TOKENS:
            columns.notes.append(f"blocks of {size} tokens, judged by the number of hash_ids")
        columns.chain_sessions = columns.session is None
    return columns


def read_row(fields: Fields, sink: RowSink, row: Row, line: int, with_blocks: bool | None) -> bool | None:
    """Put one row into the sink; whether it has hash_ids has to be the same in every row but failed ones."""
    if failed(row):
        sink.failed += 1
        return with_blocks
    sink.add(
        line,
        fields.time_ns(row, "timestamp", line, 1000),
        fields.tokens(row, "input_length", line),
        fields.tokens(row, "output_length", line),
    )
    ids = row.get("hash_ids")
    if with_blocks is None:
        with_blocks = ids is not None
    if with_blocks:
        sink.blocks(ids, line)
    elif ids is not None:
        raise fields.wrong(line, "hash_ids", "is there, though the trace has no prefix information")
    sink.session(row.get("session_id"), line)
    sink.body(recorded_body(fields, row, line))
    return with_blocks


def recorded_body(fields: Fields, row: Row, line: int) -> Any:
    """The messages (a list of objects) or the prompt (a string, or a list of token ids) of a row, or None."""
    messages = row.get("messages")
    if messages is not None:
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise fields.wrong(line, "messages", "is not a list of messages")
        return messages
    prompt = row.get("prompt")
    if prompt is None or isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    raise fields.wrong(line, "prompt", "is neither a string nor a list of token ids")


MOONCAKE = TraceFormat("mooncake", "Mooncake JSONL", _matches, _read)
