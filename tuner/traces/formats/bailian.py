"""Bailian's JSONL: chat_id, parent_chat_id, timestamp in seconds, lengths, type, turn, hash_ids of 16 tokens.

A session is everything that hangs on one first chat through parent_chat_id.
"""

from __future__ import annotations

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.jsonl import Fields, RowSink, check_blocks, fitting_block_size, rows

BLOCK_TOKENS = 16


def _matches(head: Head) -> bool:
    return head.json is not None and "parent_chat_id" in head.json


def _read(file: TraceFile) -> Columns:
    fields = Fields(file)
    sink = RowSink(fields)
    roots: dict[object, int] = {}
    for line, row in rows(file):
        time_ns = fields.time_ns(row, "timestamp", line, 1)
        inputs, outputs = fields.tokens(row, "input_length", line), fields.tokens(row, "output_length", line)
        sink.add(line, time_ns, inputs, outputs)
        sink.blocks(row.get("hash_ids"), line)
        chat, parent = row.get("chat_id"), row.get("parent_chat_id")
        for name, value in (("chat_id", chat), ("parent_chat_id", parent)):
            if value is None and name == "chat_id":
                raise fields.wrong(line, name, "is missing")
            if value is not None and type(value) is not int and type(value) is not str:
                raise fields.wrong(line, name, "is neither a string nor a whole number")
        root = roots.get(parent, len(sink))
        roots[chat] = root
        sink.session(root, line)
    columns = sink.columns()
    if len(sink):
        columns.block_tokens = fitting_block_size(sink, BLOCK_TOKENS)
        check_blocks(fields, sink, columns.block_tokens)
    columns.dense_session = False
    return columns


BAILIAN = TraceFormat("bailian", "Bailian JSONL", _matches, _read)
