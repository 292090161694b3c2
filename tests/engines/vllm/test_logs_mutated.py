"""Logs as they arrive: with prefixes, colours, cuts, foreign bytes and lines written into each other."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_texts import FLAGS, MACHINE, MEMORY, MODEL, TEXTS, Text

from tuner.engines.base import FailureKind
from tuner.engines.vllm.logs import LogReport, read_log
from tuner.engines.vllm.logs.lines import lines_of_file

LOGS = [text for text in TEXTS if text.log]
TEXT = st.sampled_from(LOGS)


def kind(log: str) -> FailureKind | None:
    return read_log(log).kind


PREFIXES = [
    "2026-10-08T20:33:48.123456789Z ",
    "2026-10-08T20:33:48.123456789Z stderr F ",
    "vllm-1  | ",
    "[pod/kimi-0/server] ",
    "Oct 08 20:33:48 gpu-7 vllm[8707]: ",
    "[rank0]: ",
    "(RayWorkerWrapper pid=90, ip=10.0.0.2) ",
    "\x1b[36mvllm-1  |\x1b[0m ",
    "gx10-9eba run.sh[163530]: ",
    "  | [2026-10-08T20:33:48Z] ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_never_changes_what_is_said(prefix: str) -> None:
    for text in LOGS:
        report, plain = (
            read_log("\n".join(prefix + line for line in text.log.split("\n"))),
            read_log(text.log),
        )
        assert (text.name, report.kind, report.bounds) == (text.name, plain.kind, plain.bounds)


@given(
    TEXT, st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=12), st.sampled_from(" |>] ")
)
@settings(max_examples=60, deadline=None)
def test_any_word_before_each_line_keeps_the_kind(text: Text, word: str, end: str) -> None:
    assert kind("\n".join(f"{word.lower()}{end} {line}" for line in text.log.split("\n"))) == kind(text.log)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.replace("\n", "\r\n"),
        lambda log: "\n".join(f"\x1b[1;31m{line}\x1b[0;0m" for line in log.split("\n")),
        lambda log: "\n".join(f"^[[31m{line}^[[0m" for line in log.split("\n")),
        lambda log: "\n".join(
            json.dumps({"log": line + "\n", "stream": "stderr"}) for line in log.split("\n")
        ),
        lambda log: "\n".join(json.dumps({"message": line}) for line in log.split("\n")),
        lambda log: "\ufeff" + log,
        lambda log: log.replace("\n", "\r  5%|▌ | 1/20 [00:01<00:20]\r 10%|█ | 2/20 [00:02<00:18]\r\n"),
        lambda log: (
            log
            + "\n/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: "
            "There appear to be 1 leaked semaphore objects to clean up at shutdown\n  warnings.warn('x'"
        ),
    ],
    ids=[
        "crlf",
        "ansi",
        "caret-ansi",
        "docker-json",
        "message-json",
        "bom",
        "progress-bars",
        "resource-tracker",
    ],
)
def test_wrappings_keep_the_kind(change: object) -> None:
    assert callable(change)
    for text in LOGS:
        assert (text.name, kind(change(text.log))) == (text.name, kind(text.log))


@pytest.mark.parametrize("text", [*MEMORY, *FLAGS, *MODEL], ids=lambda text: text.name)
def test_two_workers_in_turn_keep_the_kind(text: Text) -> None:
    """Every line twice, by two workers, line by line."""
    first = [f"(Worker_TP0 pid=11) {line}" for line in text.log.split("\n")]
    second = [f"(Worker_TP1 pid=12) {line}" for line in text.log.split("\n")]
    log = "\n".join(line for pair in zip(first, second, strict=True) for line in pair)
    assert kind(log) == kind(text.log)


def test_a_line_written_into_another() -> None:
    log = (
        "(Worker_TP0 pid=11) ERROR 10-08 20:33:48 [x.py:1] Tra"
        "(Worker_TP1 pid=12) ERROR 10-08 20:33:48 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.\n"
        "ceback (most recent call last):\n"
    )
    assert kind(log) is FailureKind.OOM


def test_one_long_line() -> None:
    """A log pasted with blanks in place of line ends."""
    for text in (MEMORY[0], MEMORY[2], MEMORY[7]):
        assert kind(text.log.replace("\n", " ")) is kind(text.log)


def test_a_message_cut_at_the_end_is_still_read() -> None:
    cut = "(EngineCore pid=1) ERROR 10-08 20:33:48 [x.py:9] ValueError: No available memory for the cache blo"
    assert kind(cut + "cks. Try incr") is FailureKind.KV_MEMORY
    assert kind(cut) is FailureKind.UNKNOWN and "No available memory" in read_log(cut).cause


def _well_formed(report: LogReport) -> None:
    said = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert said["ready"] == (said["kind"] is None)
    assert said["ready"] or said["cause"]


@given(TEXT, st.data())
@settings(max_examples=80, deadline=None)
def test_any_cut_is_read(text: Text, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text.log)))
    end = data.draw(st.integers(begin, len(text.log)))
    _well_formed(read_log(text.log[begin:end]))


@given(st.lists(TEXT, min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_shuffled_and_mixed_lines_are_read(texts: list[Text], rng: random.Random) -> None:
    lines = [line for text in texts for line in text.log.split("\n")]
    rng.shuffle(lines)
    _well_formed(read_log("\n".join(lines)))


@given(TEXT, st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=6)), max_size=12))
@settings(max_examples=80, deadline=None)
def test_foreign_bytes_are_read(text: Text, inserted: list[tuple[int, bytes]]) -> None:
    raw = text.log.encode()
    for place, junk in inserted:
        place %= len(raw) + 1
        raw = raw[:place] + junk + raw[place:]
    _well_formed(read_log(raw.split(b"\n")))


@given(st.text(max_size=300))
@settings(max_examples=80, deadline=None)
def test_any_text_is_read(text: str) -> None:
    _well_formed(read_log(text))


def test_memory_does_not_grow_with_the_log() -> None:
    """Ten times the log, the same peak: and the cause behind it all is still found."""

    def log(lines: int) -> Iterator[str]:
        yield from MACHINE[0].log.split("\n")[:1]
        for index in range(lines):
            yield f"INFO 10-08 20:33:48 [loggers.py:1] line {index} Avg prompt throughput: 1.0 tokens/s"
            yield f"ERROR 10-08 20:33:48 [serving.py:1] ValueError: request {index}"
        yield "(EngineCore pid=2) ERROR 10-08 21:00:00 [core.py:1] EngineCore encountered a fatal error."
        yield "(EngineCore pid=2) ERROR 10-08 21:00:00 [x.py:1] torch.OutOfMemoryError: CUDA out of memory."

    def peak(lines: int) -> int:
        tracemalloc.start()
        assert read_log(log(lines)).kind is FailureKind.OOM
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(10)
    assert peak(1500) < peak(150) + 50_000


def test_of_a_huge_file_head_and_tail_are_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    request = 'INFO:     10.0.0.5:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    path.write_text(f"the first line\n{request * 5000}the last line\n")
    lines = list(lines_of_file(path, head=1000, tail=2000))
    assert (lines[0], lines[-1]) == (b"the first line\n", b"the last line\n")
    assert sum(map(len, lines)) < 3500
    assert set(lines[1:-1]) == {request.encode()}
    assert len(list(lines_of_file(path))) == 5002


def test_a_line_without_end() -> None:
    assert (
        kind("x" * 300_000 + " ValueError: No available memory for the cache blocks.")
        is FailureKind.KV_MEMORY
    )
