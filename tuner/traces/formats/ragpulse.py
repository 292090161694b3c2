"""RAGPulse's JSONL: seconds in a string, session_id, and hash_ids by part of the prompt.

The parts (system prompt, passages, history, …) have ids but no lengths, so they are no fixed blocks and
prefix reuse cannot be told from them.
"""

from __future__ import annotations

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.jsonl import Fields, RowSink, rows

_NOTE = "hash_ids name parts of the prompt without their lengths: prefix reuse cannot be told"


def _matches(head: Head) -> bool:
    return head.json is not None and isinstance(head.json.get("hash_ids"), dict)


def _read(file: TraceFile) -> Columns:
    fields = Fields(file)
    sink = RowSink(fields)
    for line, row in rows(file):
        time_ns = fields.time_ns(row, "timestamp", line, 1)
        inputs, outputs = fields.tokens(row, "input_length", line), fields.tokens(row, "output_length", line)
        sink.add(line, time_ns, inputs, outputs)
        sink.session(row.get("session_id"), line)
    columns = sink.columns()
    columns.notes.append(_NOTE)
    return columns


RAGPULSE = TraceFormat("ragpulse", "RAGPulse JSONL", _matches, _read)
