"""Traces in and out: any known format is read, the project's own is written."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tuner.errors import BadRequest
from tuner.traces.assemble import assemble
from tuner.traces.files import TraceFile
from tuner.traces.formats import find_format
from tuner.traces.formats.own import header_of
from tuner.traces.trace import Trace

SHIPPED = Path(__file__).parent / "data" / "support-chat.jsonl"
_ROWS_AT_ONCE = 4096


def load_trace(path: Path) -> Trace:
    """The trace in a file of any known format, compressed or not, chosen by content.

    Raises:
        BadRequest: unreadable, of no known format, or wrong; names file, line and field.
    """
    file = TraceFile(Path(path))
    known = find_format(file)
    return assemble(known.read(file), format=known.name, name=file.path.name, path=str(path))


def shipped_trace() -> Trace:
    """The trace that ships: 2,000 requests of a support chat in 20 minutes."""
    file = TraceFile(SHIPPED)
    return assemble(find_format(file).read(file), format="kimi-tune", name=SHIPPED.name)


def write_trace(trace: Trace, path: Path, **header: Any) -> None:
    """Write a trace in the project's own format (gzip or zstandard by the name's end), `header` in its first
    line. Reading it gives the same columns to the last bit where the trace begins at 0.

    Raises:
        BadRequest: the file cannot be written, or zstandard is asked for and not installed.
    """
    path = Path(path)
    try:
        data = b"".join(_lines(trace, header))
    except orjson.JSONEncodeError as error:
        raise BadRequest(f"{path.name}: a recorded text or note cannot be written ({error})") from None
    if path.suffix == ".gz":
        data = gzip.compress(data, 9, mtime=0)
    elif path.suffix == ".zst":
        data = _zstd(data, path)
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise BadRequest(f"{path}: cannot be written ({error.strerror or error})") from None


def _zstd(data: bytes, path: Path) -> bytes:
    try:
        import zstandard
    except ImportError:
        mend = "pip install zstandard, or write a .jsonl.gz"
        raise BadRequest(f"{path.name}: zstandard is not installed", mend) from None
    packed: bytes = zstandard.ZstdCompressor(level=10).compress(data)
    return packed


def _lines(trace: Trace, header: dict[str, Any]) -> Iterator[bytes]:
    source = trace.source
    first = header_of(
        block_size=trace.block_tokens,
        prefix_reuse="recorded" if trace.block_tokens else "none",
        requests=len(trace),
        **header,
    )
    for name, value in (
        ("left_out", dict(source.left_out)),
        ("notes", source.notes),
        ("changes", source.changes),
    ):
        if value:
            first[name] = value
    yield orjson.dumps(first, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    for start in range(0, len(trace), _ROWS_AT_ONCE):
        yield b"".join(_rows(trace, start, min(start + _ROWS_AT_ONCE, len(trace))))


def _rows(trace: Trace, start: int, stop: int) -> Iterator[bytes]:
    arrival = trace.arrival_s[start:stop]
    ns = np.rint(arrival * 1e9).astype(np.int64)
    exact = (ns / 1e9 == arrival).tolist()
    inputs, outputs = trace.input_tokens[start:stop].tolist(), trace.output_tokens[start:stop].tolist()
    sessions = trace.session[start:stop].tolist()
    for row, time_ns in enumerate(ns.tolist()):
        fields: dict[str, Any] = {
            "timestamp": time_ns // 1_000_000 if time_ns % 1_000_000 == 0 else time_ns / 1e6,
            "input_length": inputs[row],
            "output_length": outputs[row],
        }
        if not exact[row]:
            fields["arrival_s"] = float(arrival[row])
        if trace.block_tokens:
            fields["hash_ids"] = trace.blocks_of(start + row).tolist()
        fields["session_id"] = sessions[row]
        body = trace.bodies[start + row] if trace.bodies is not None else None
        if body is not None:
            messages = isinstance(body, list) and body and isinstance(body[0], dict)
            fields["messages" if messages else "prompt"] = body
        yield orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
