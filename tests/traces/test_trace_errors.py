"""Files that are no traces, or not as they should be: one clear line each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_examples import EXAMPLES

from tuner.errors import BadRequest
from tuner.traces import load_trace, shipped_trace, write_trace

Write = Callable[..., Path]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"nowhere\.csv: no such file"):
        load_trace(tmp_path / "nowhere.csv")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is a folder"):
        load_trace(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n"])
def test_an_empty_file(data: bytes, trace_file: Write) -> None:
    with pytest.raises(BadRequest, match=r"requests\.log: is empty"):
        load_trace(trace_file(data))


@pytest.mark.parametrize(
    "data", [b"a,b,c\n1,2,3\n", b"{}\n", b"{broken\n", b"\x00\x01\x02", b"[1, 2]\n", b"hello\n" * 3]
)
def test_an_unknown_format_says_what_it_saw(data: bytes, trace_file: Write) -> None:
    with pytest.raises(BadRequest, match=r"requests\.log, line 1: no trace format begins with") as caught:
        load_trace(trace_file(data))
    assert "Mooncake JSONL" in caught.value.mend and "Azure" in caught.value.mend


def test_a_line_that_is_not_json(trace_file: Write) -> None:
    data = EXAMPLES["mooncake"].text() + b'\n{"timestamp": 9501, "input_le'
    with pytest.raises(BadRequest, match=r"requests\.log, line 5: is not JSON"):
        load_trace(trace_file(data))


def test_a_damaged_archive(trace_file: Write) -> None:
    packed = gzip.compress(EXAMPLES["azure"].text() * 50)
    with pytest.raises(BadRequest, match="the compressed file is damaged"):
        load_trace(trace_file(packed[: len(packed) // 2]))


def test_a_damaged_zstandard_file(trace_file: Write) -> None:
    packed = bytearray(pytest.importorskip("zstandard").ZstdCompressor().compress(EXAMPLES["azure"].text()))
    packed[6:20] = b"\xff" * 14
    with pytest.raises(BadRequest):
        load_trace(trace_file(bytes(packed)))


def test_a_block_size_that_is_not_the_files_own(trace_file: Write) -> None:
    data = EXAMPLES["kimi-tune"].text().replace(b'"block_size": 64', b'"block_size": 32')
    with pytest.raises(BadRequest, match=r"line 2: hash_ids has 2 blocks for 100 tokens, 4 expected at 32"):
        load_trace(trace_file(data))


def test_mooncake_with_blocks_of_another_size_is_understood(trace_file: Write) -> None:
    rows = [
        {"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": list(range(7))},
        {"timestamp": 1, "input_length": 33, "output_length": 1, "hash_ids": [0, 1, 9]},
    ]
    trace = load_trace(trace_file("\n".join(map(json.dumps, rows)).encode()))
    assert trace.block_tokens == 16
    assert "blocks of 16 tokens, judged by the number of hash_ids" in trace.source.notes


def test_mooncake_with_blocks_of_no_size(trace_file: Write) -> None:
    data = EXAMPLES["mooncake"].with_field(1, "input_length", 5000)
    with pytest.raises(
        BadRequest, match=r"line 2: hash_ids has 2 blocks for 5,000 tokens, 10 expected at 512"
    ):
        load_trace(trace_file(data))


def test_a_newer_version_of_the_own_format(trace_file: Write) -> None:
    data = EXAMPLES["kimi-tune"].text().replace(b'"kimi-tune-trace": 1', b'"kimi-tune-trace": 2')
    with pytest.raises(BadRequest, match="kimi-tune-trace is 2, this version reads 1"):
        load_trace(trace_file(data))


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be written"):
        write_trace(shipped_trace(), tmp_path / "no" / "folder.jsonl")


def test_quoted_csv_and_odd_rows_go_the_slow_way(trace_file: Write) -> None:
    data = (
        b'"TIMESTAMP","ContextTokens","GeneratedTokens"\n'
        b'"2024-05-10 00:00:00.009930+00:00","2162","5"\n'
        b"2024-05-10T01:00:01+01:00,2399.0,6,extra\n"
        b"2024-05-10 00:00:01.5Z,10,7\n"
    )
    trace = load_trace(trace_file(data))
    assert trace.arrival_s.tolist() == [0.0, 0.99007, 1.49007]
    assert trace.input_tokens.tolist() == [2162, 2399, 10]


def test_ids_may_be_hashes_or_strings(trace_file: Write) -> None:
    for ids in ([2**64 - 1, 5], [-3, 2**63 - 1], ["ab", "cd"]):
        rows = [
            {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": ids},
            {"timestamp": 5, "input_length": 1025, "output_length": 1, "hash_ids": [*ids, ids[0]]},
        ]
        trace = load_trace(trace_file("\n".join(map(json.dumps, rows)).encode()))
        assert trace.blocks_of(0).tolist() == trace.blocks_of(1)[:2].tolist()
        assert trace.blocks_of(1)[0] == trace.blocks_of(1)[2] != trace.blocks_of(1)[1]
        assert 0 <= trace.block_ids.min() and trace.block_ids.max() < 2**62


@pytest.mark.parametrize(
    "ids", [[1, "a"], ["a", 1], [1.5, 2], [2**64, 1], [None, 1], "ab", {"a": 1}, [[], 1]]
)
def test_ids_of_another_kind(ids: object, trace_file: Write) -> None:
    data = EXAMPLES["mooncake"].with_field(1, "hash_ids", ids)
    with pytest.raises(BadRequest, match=r"line 2: hash_ids "):
        load_trace(trace_file(data))


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("name", ["kimi-tune", "mooncake"])
@pytest.mark.parametrize("field, value", [("error", "reset"), ("status", 503)])
def test_failed_requests_are_left_out(
    name: str, row: int, field: str, value: object, trace_file: Write
) -> None:
    trace = load_trace(trace_file(EXAMPLES[name].with_field(row, field, value)))
    assert len(trace) == 2 and dict(trace.source.left_out) == {"failed": 1}
    assert trace.block_tokens == EXAMPLES[name].block_tokens
