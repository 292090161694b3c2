"""Reads a log line by line, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tuner.engines.vllm.logs.lines import HEAD_BYTES, TAIL_BYTES, lines_of_file, pieces
from tuner.engines.vllm.logs.phases import STARTING, phase_of
from tuner.engines.vllm.logs.report import LogReport
from tuner.engines.vllm.logs.start import Start
from tuner.engines.vllm.logs.verdict import judge
from tuner.errors import BadRequest


def read_log(text: str | Iterable[str | bytes]) -> LogReport:
    """Read a vLLM log: the whole text, or its lines (an open file will do).

    A log that holds several starts is judged by its last one; where that one was cut off, by the failure
    before it.
    """
    raw = text.splitlines() if isinstance(text, str) else text
    start, earlier, before = Start(), None, ""
    for piece in pieces(raw):
        # A server that is up tells no more phases, but another may start behind it.
        mark = phase_of(piece.body) if not start.served or "version" in piece.body else None
        if mark is not None and mark.phase == STARTING and start.over():
            earlier, start = start, Start()
        start.take(piece, mark, before)
        before = piece.body or before
    if earlier is not None and not start.over() and not earlier.served:
        start = earlier
    return judge(start)


def read_log_file(path: Path) -> LogReport:
    """Read a vLLM log from a file.

    Raises:
        BadRequest: the file cannot be read.
    """
    try:
        report = read_log(lines_of_file(path))
        passed_over = path.stat().st_size - HEAD_BYTES - TAIL_BYTES
    except OSError as error:
        raise BadRequest(
            f"{path}: {error.strerror or error}", "name the file of vLLM's stdout and stderr"
        ) from error
    if passed_over <= 0:
        return report
    note = f"{passed_over / 2**30:.1f} GiB in the middle of the log were not read"
    return replace(report, notes=(*report.notes, note))
