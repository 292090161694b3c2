"""The contract that every trace format passes, over one small example each."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trace_examples import EXAMPLES

from tuner.errors import BadRequest
from tuner.traces import load_trace, write_trace
from tuner.traces.formats import FORMATS

Write = Callable[..., Path]
NAMES = [known.name for known in FORMATS]
every_format = pytest.mark.parametrize("name", NAMES)


def test_every_format_has_an_example() -> None:
    assert set(EXAMPLES) == set(NAMES)


@every_format
def test_reads_what_the_file_says(name: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    trace = load_trace(trace_file(example.text()))
    assert trace.source.format == name
    assert trace.arrival_s.tolist() == list(example.arrival_s)
    assert trace.input_tokens.tolist() == list(example.input_tokens)
    assert trace.output_tokens.tolist() == list(example.output_tokens)
    assert trace.session.tolist() == list(example.session)
    assert trace.block_tokens == example.block_tokens
    assert trace.source.prefix_reuse == bool(example.block_tokens)
    assert trace.input_tokens.dtype == trace.output_tokens.dtype == np.int32
    assert trace.session.dtype == trace.block_ids.dtype == trace.block_offsets.dtype == np.int64


@every_format
def test_says_whether_prefixes_are_known(name: str, trace_file: Write) -> None:
    trace = load_trace(trace_file(EXAMPLES[name].text()))
    said = any("no prefix information" in note for note in trace.source.notes)
    assert said != trace.source.prefix_reuse
    if trace.block_tokens:
        blocks = np.diff(trace.block_offsets)
        assert blocks.tolist() == (-(-trace.input_tokens // trace.block_tokens)).tolist()


@every_format
@pytest.mark.parametrize(
    "newline, end, blank",
    [("\r\n", "\r\n", ""), ("\n", "", ""), ("\r\n", "", ""), ("\n", "\n\n \n", ""), ("\n", "\n", "\n")],
)
def test_line_ends_do_not_matter(name: str, newline: str, end: str, blank: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    plain = load_trace(trace_file(example.text()))
    other = load_trace(trace_file(example.text(newline=newline + blank, end=end), "other.txt"))
    assert other.digest() == plain.digest()


@every_format
def test_byte_order_mark_is_passed_over(name: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    plain = load_trace(trace_file(example.text()))
    assert load_trace(trace_file(b"\xef\xbb\xbf" + example.text(), "b")).digest() == plain.digest()


@every_format
@pytest.mark.parametrize("packer", ["gzip", "zstandard"])
def test_compressed_files(name: str, packer: str, trace_file: Write) -> None:
    data = EXAMPLES[name].text()
    if packer == "gzip":
        packed = gzip.compress(data)
    else:
        packed = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    assert load_trace(trace_file(packed, "x")).digest() == load_trace(trace_file(data, "y")).digest()


@every_format
def test_order_is_mended_and_said(name: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    first, second, third = example.rows
    mended = load_trace(trace_file(example.text((first, third, second))))
    assert mended.arrival_s.tolist() == list(example.arrival_s)
    assert mended.input_tokens.tolist() == list(example.input_tokens)
    assert "order mended: 1 request was earlier than the one before" in mended.source.notes
    if not example.block_tokens:
        return
    plain = load_trace(trace_file(example.text(), "plain"))
    assert [len(mended.blocks_of(i)) for i in range(3)] == [len(plain.blocks_of(i)) for i in range(3)]


@every_format
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_missing_field_is_named_with_its_line(name: str, row: int, trace_file: Write) -> None:
    example = EXAMPLES[name]
    for field in example.fields:
        if field == "hash_ids" and row == 0 and name == "mooncake":
            continue  # the first row says whether the file has hash_ids at all
        path = trace_file(example.with_field(row, field, None, drop=True), "broken.data")
        with pytest.raises(BadRequest) as caught:
            load_trace(path)
        line = example.first_row_line() + row
        assert caught.value.what.startswith(f"broken.data, line {line}: {field} is missing"), field
        assert caught.value.mend


@every_format
@pytest.mark.parametrize("value", ["abc", "-5", "1e400", "[]", "4.5.6", "99999999999999999999999"])
def test_a_wrong_field_is_named_with_its_line(name: str, value: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    for field in example.fields:
        if field in ("chat_id", "hash_ids") or (value == "-5" and "time" in field.lower()):
            continue
        if field in ("arrived_at", "arrival_timestamp") and value == "-5":
            continue
        with pytest.raises(BadRequest) as caught:
            load_trace(trace_file(example.with_field(1, field, value), "broken.data"))
        line = example.first_row_line() + 1
        assert re.match(rf"broken\.data, line {line}: {field} is ", caught.value.what), caught.value.what


@every_format
def test_rows_without_tokens_are_left_out_and_counted(name: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    outputs = example.fields[2] if name != "openai-log" else "max_tokens"
    trace = load_trace(trace_file(example.with_field(1, outputs, 0)))
    assert trace.input_tokens.tolist() == [example.input_tokens[0], example.input_tokens[2]]
    assert dict(trace.source.left_out) == {"failed" if name == "burstgpt" else "zero length": 1}
    assert sorted(set(trace.session.tolist())) == list(range(len(set(trace.session.tolist()))))


@every_format
def test_a_file_with_no_request_left(name: str, trace_file: Write) -> None:
    example = EXAMPLES[name]
    outputs = example.fields[2] if name != "openai-log" else "max_tokens"
    one = example.with_field(0, outputs, 0).splitlines()[: example.first_row_line()]
    with pytest.raises(BadRequest, match="no request in it"):
        load_trace(trace_file(b"\n".join(one)))


@every_format
def test_converting_keeps_every_bit(name: str, trace_file: Write, tmp_path: Path) -> None:
    trace = load_trace(trace_file(EXAMPLES[name].text()))
    for ending in (".jsonl", ".jsonl.gz"):
        path = tmp_path / f"own{ending}"
        write_trace(trace, path)
        again = load_trace(path)
        assert again.digest() == trace.digest()
        assert again.bodies == trace.bodies
        assert again.source.format == "kimi-tune"
        assert again.source.notes == trace.source.notes
        assert again.source.left_out == trace.source.left_out
