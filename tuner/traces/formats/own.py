"""The project's own format: a first line that describes the file, then Mooncake's fields and a few more.

First line: `{"kimi-tune-trace": 1, "block_size": 64, "prefix_reuse": "recorded"|"none", ...}`. A row is
`timestamp` (ms), `input_length`, `output_length`, and where known `hash_ids`, `session_id`, `messages` or
`prompt`, `error` or `status` where it failed, and `arrival_s` where milliseconds cannot carry the time to
the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.traces.files import TraceFile
from tuner.traces.formats.base import Columns, Head, TraceFormat
from tuner.traces.formats.jsonl import Fields, Row, RowSink, check_blocks, row_of
from tuner.traces.formats.mooncake import BLOCK_TOKENS, read_row

KEY = "kimi-tune-trace"
VERSION = 1


def _matches(head: Head) -> bool:
    return head.json is not None and KEY in head.json


def _read(file: TraceFile) -> Columns:
    fields = Fields(file)
    sink = RowSink(fields)
    header: Row | None = None
    with_blocks, size = False, 0
    estimated = 0
    for line, row in _whole_rows(file):
        if header is None:
            header = row
            size = _block_size(fields, row, line)
            with_blocks = row.get("prefix_reuse", "recorded") == "recorded"
            continue
        before = len(sink)
        read_row(fields, sink, row, line, with_blocks)
        exact = row.get("arrival_s")
        if exact is not None and len(sink) > before:
            fields.scaled_ns(exact, "arrival_s", line, 1)
            sink.arrival_s[len(sink) - 1] = float(exact)
        estimated += "estimated" in row and len(sink) > before
    columns = sink.columns()
    if estimated:
        columns.notes.append(f"{estimated:,} requests have estimated lengths")
    if with_blocks and len(sink):
        check_blocks(fields, sink, size)
        columns.block_tokens = size
        columns.chain_sessions = sink.unnamed > 0
        columns.unnamed_from = sink.sessions if columns.session is not None else None
    if header is not None:
        _provenance(header, columns)
    return columns


def _whole_rows(file: TraceFile) -> Iterator[tuple[int, Row]]:
    """Every row; a last line that was cut off, as a killed recorder may leave it, is none."""
    before: tuple[int, bytes] | None = None
    for number, line in file.lines():
        if before is not None:
            yield before[0], row_of(file, *before)
        before = number, line
    if before is not None and (before[0] == 1 or before[1].endswith(b"}")):
        yield before[0], row_of(file, *before)


def _block_size(fields: Fields, header: Row, line: int) -> int:
    if header.get(KEY) != VERSION:
        what = f"{KEY} is {header.get(KEY)!r}, this version reads {VERSION}"
        raise fields.file.error(line, what, "upgrade kimi-tune")
    if header.get("prefix_reuse", "recorded") not in ("recorded", "none"):
        raise fields.wrong(line, "prefix_reuse", 'is neither "recorded" nor "none"')
    size = header.get("block_size", BLOCK_TOKENS)
    if type(size) is not int or not 0 <= size <= 1 << 20:
        raise fields.wrong(line, "block_size", "is not a whole number of tokens")
    if not size and header.get("prefix_reuse", "recorded") == "recorded":
        raise fields.wrong(line, "block_size", "is 0, but prefix reuse is recorded")
    return size


def _provenance(header: Row, columns: Columns) -> None:
    """What the header says was done to the trace before it was written."""
    left_out, notes, changes = header.get("left_out"), header.get("notes"), header.get("changes")
    if isinstance(left_out, Mapping):
        columns.left_out.update({str(k): v for k, v in left_out.items() if type(v) is int and v > 0})
    if isinstance(notes, list):
        columns.notes.extend(note for note in notes if isinstance(note, str))
    if isinstance(changes, list):
        columns.changes = tuple(change for change in changes if isinstance(change, dict))


def header_of(**fields: Any) -> dict[str, Any]:
    """A first line with these fields."""
    return {KEY: VERSION, **fields}


OWN = TraceFormat("kimi-tune", "kimi-tune JSONL", _matches, _read)
