"""CSV parsed many rows at once: the same as one row at a time, and errors where they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.traces import load_trace
from tuner.traces.files import TraceFile
from tuner.traces.formats import digits
from tuner.traces.formats.base import YEARS
from tuner.traces.formats.table import _PARSERS, _SLOW, Kind

Write = Callable[..., Path]

_FRACTION = st.just("") | st.integers(0, 10**12).map(lambda n: f".{n}") | st.just(".000000001")
_ZONE = st.sampled_from(["", "Z", "+00:00", "-07:30", "+14:00", "+24:00", "UTC"])
_TEXTS = {
    Kind.TOKENS: st.integers(0, 10**11).map(str) | st.text("0123456789.-+ eE_", max_size=8),
    Kind.SECONDS: st.builds("{}{}".format, st.integers(0, 10**10), _FRACTION)
    | st.text("0123456789.-+eE_", max_size=12),
    Kind.DATETIME: st.builds("{:%Y-%m-%d %H:%M:%S}{}{}".format, st.datetimes(), _FRACTION, _ZONE)
    | st.text("0123456789.-+:TZ ", max_size=24),
}


@pytest.mark.parametrize("kind", list(_TEXTS))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_at_once_and_one_by_one_agree(kind: Kind, data: st.DataObject) -> None:
    """What the quick way reads, the slow way reads alike; what it leaves, the slow way may read or refuse."""
    texts = data.draw(st.lists(_TEXTS[kind], min_size=1, max_size=12))
    piece = ",".join(texts).encode() + b"\n"
    buffer = np.frombuffer(piece, np.uint8)
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    starts = np.concatenate([[0], ends[:-1] + 1])
    values, bad = _PARSERS[kind](buffer, starts, ends)
    for text, value, left in zip(texts, values.tolist(), bad.tolist(), strict=True):
        if left or (kind is Kind.TOKENS and value >= 2**31):
            continue
        assert _SLOW[kind](text) == value, text


@given(st.lists(st.datetimes(datetime(YEARS[0], 1, 2), datetime(YEARS[-1], 12, 30)), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_times_as_datetime_has_them(moments: list[datetime]) -> None:
    texts = [moment.isoformat(" ", "microseconds") for moment in moments]
    buffer = np.frombuffer((",".join(texts) + "\n").encode(), np.uint8)
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    values, bad = digits.datetimes_ns(buffer, np.concatenate([[0], ends[:-1] + 1]), ends)
    assert not bad.any()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    wanted = [(moment.replace(tzinfo=UTC) - epoch) // timedelta(microseconds=1) * 1000 for moment in moments]
    assert values.tolist() == wanted


def _rows(count: int) -> list[str]:
    start = datetime(2024, 5, 10, tzinfo=UTC)
    return [f"{start + timedelta(milliseconds=37 * k)},{k % 700 + 1},{k % 90 + 1}" for k in range(count)]


def test_large_files_go_in_pieces(trace_file: Write) -> None:
    rows = _rows(60_000)
    data = ("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows)).encode()
    assert len(list(TraceFile(trace_file(data)).chunks())) > 1
    trace = load_trace(trace_file(data))
    assert len(trace) == len(rows)
    assert np.allclose(trace.arrival_s, np.arange(len(rows)) * 0.037, atol=1e-9)
    assert trace.input_tokens.tolist() == [k % 700 + 1 for k in range(len(rows))]
    # one row that needs the slow way changes nothing
    first, _, rest = rows[30_000].partition(",")
    rows[30_000] = f'"{first}",{rest}'
    quoted = ("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows)).encode()
    assert load_trace(trace_file(quoted)).digest() == trace.digest()


def test_errors_late_in_a_large_file_name_their_line(trace_file: Write) -> None:
    rows = _rows(60_000)
    rows[55_998] = rows[55_998].rpartition(",")[0] + ","
    data = ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "\r\n".join(rows)).encode()
    with pytest.raises(BadRequest, match=r"big\.csv, line 56000: GeneratedTokens is missing"):
        load_trace(trace_file(data, "big.csv"))


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_pieces_are_whole_lines(size: int, trace_file: Write) -> None:
    data = b"first\nsecond\n\nfourth line\nfifth"
    pieces = list(TraceFile(trace_file(data)).chunks(size))
    assert b"".join(piece for _, piece in pieces) == data + b"\n"
    before = 1
    for line, piece in pieces:
        assert piece.endswith(b"\n") and line == before
        before += piece.count(b"\n")
