"""Reads a log line by line and decides: up, failed and why, or cut off."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.engines.base import FailureKind
from tuner.engines.vllm.logs import causes_config, causes_machine, causes_memory, causes_model
from tuner.engines.vllm.logs.exceptions import DEATH, FAILED_START, Thrown, thrown_in
from tuner.engines.vllm.logs.figures import Figures, take_figures
from tuner.engines.vllm.logs.lines import YEAR_S, Level, Piece, lines_of_file, pieces
from tuner.engines.vllm.logs.pattern import Explained, Found, Pattern
from tuner.engines.vllm.logs.phases import READY, SERVING, SHUTDOWN, STARTING, Mark, phase_of
from tuner.engines.vllm.logs.report import LogReport
from tuner.errors import BadRequest

PATTERNS: tuple[Pattern, ...] = (
    *causes_memory.PATTERNS,
    *causes_config.PATTERNS,
    *causes_model.PATTERNS,
    *causes_machine.PATTERNS,
)
"""Every known failure; the order decides only between patterns of one rank that match the same line."""

_NEAR = 5000
"""Messages before a death within which its cause is looked for: earlier ones belong to single requests."""


@dataclass(slots=True)
class _Hit:
    at: int
    match: re.Match[str]
    before: str
    phase: str
    served: bool


@dataclass(slots=True)
class _Start:
    """One start of a server in the log: what has been seen of it, in bounded memory."""

    figures: Figures = field(default_factory=Figures)
    hits: dict[int, _Hit] = field(default_factory=dict)
    thrown: dict[bool, tuple[int, Thrown] | None] = field(default_factory=dict)
    wrapper: Thrown | None = None
    failed: int | None = None
    died: int | None = None
    stopping: int | None = None
    mark: Mark | None = None
    ready: bool = False
    served: bool = False
    vllm: bool = False
    pieces: int = 0
    first: float | None = None
    last: float | None = None
    ready_at: float | None = None
    first_iso: float | None = None
    last_iso: float | None = None

    def over(self) -> bool:
        """Whether this start has come to some end, so that a new banner begins another."""
        return (
            self.ready or self.failed is not None or self.died is not None or bool(self.hits or self.thrown)
        )


def read_log(text: str | Iterable[str | bytes]) -> LogReport:
    """Read a vLLM log: whole text, or its lines (an open file will do), in memory that does not grow with it.

    A log that holds several starts is judged by its last one; where that one was cut off, by the failure
    before it.
    """
    raw = text.splitlines() if isinstance(text, str) else text
    start, previous, before = _Start(), None, ""
    for piece in pieces(raw):
        mark = phase_of(piece.body)
        if mark is not None and mark.phase == STARTING and start.over():
            previous, start = start, _Start()
        _take(start, piece, mark, before)
        before = piece.body or before
    if previous is not None and not start.over() and not previous.ready:
        start = previous
    return _judge(start)


def read_log_file(path: Path) -> LogReport:
    """Read a vLLM log from a file.

    Raises:
        BadRequest: the file cannot be read.
    """
    try:
        return read_log(lines_of_file(path))
    except OSError as error:
        raise BadRequest(
            f"{path}: {error.strerror or error}", "name a log of vLLM, its stdout and stderr"
        ) from error


def _take(start: _Start, piece: Piece, mark: Mark | None, before: str) -> None:
    body = piece.body
    start.pieces += 1
    _clock(start, piece)
    if not body:
        return
    if piece.level is not Level.ERROR:
        take_figures(start.figures, body)
    if mark is not None:
        start.vllm = True
        start.mark = mark
        if mark.phase == READY:
            start.ready = start.served = True
            start.ready_at = start.last if start.last is not None else start.last_iso
    elif not start.served and SERVING.search(body):
        start.served = True
    if piece.source or piece.stamp is not None:
        start.vllm = True
    if SHUTDOWN.search(body):
        start.stopping = start.stopping or start.pieces
    if piece.level <= Level.WARNING:
        _failures(start, piece, before, quiet=True)
        return
    _failures(start, piece, before, quiet=False)
    if start.failed is None and FAILED_START.search(body):
        start.failed = start.pieces
        start.thrown.pop(False, None)
    if start.died is None and start.stopping is None and DEATH.search(body):
        start.died = start.pieces
    if (thrown := thrown_in(body)) is not None:
        _note(start, thrown)


def _note(start: _Start, thrown: Thrown) -> None:
    """Keep the first true exception, and the first of those that mostly follow; while a server is up, the latest
    before its death.
    """
    if thrown.strength == 0:
        start.wrapper = start.wrapper or thrown
        return
    weak = thrown.strength == 1
    if start.thrown.get(weak) is None or (start.served and start.died is None):
        start.thrown[weak] = (start.pieces, thrown)


def _failures(start: _Start, piece: Piece, before: str, *, quiet: bool) -> None:
    for index, pattern in enumerate(PATTERNS):
        if quiet and not pattern.quiet:
            continue
        known = start.hits.get(index)
        if known is not None and not (start.served and start.died is None):
            continue
        if (match := pattern.search(piece.body)) is None:
            continue
        if pattern.death and start.died is None and start.stopping is None:
            start.died = start.pieces
        phase = start.mark.phase if start.mark else ""
        start.hits[index] = _Hit(start.pieces, match, before, phase, start.served)


def _clock(start: _Start, piece: Piece) -> None:
    if piece.stamp is not None:
        start.first = piece.stamp if start.first is None else start.first
        start.last = piece.stamp
    if piece.iso is not None:
        start.first_iso = piece.iso if start.first_iso is None else start.first_iso
        start.last_iso = piece.iso


def _judge(start: _Start) -> LogReport:
    chosen = _choose(start)
    if chosen is not None:
        return _report(start, *chosen)
    if start.served and start.died is None:
        return _report(start, None, Explained(""))
    if start.died is not None:
        return _report(start, FailureKind.ENGINE_DEAD, _dead(start))
    if (thrown := _deepest(start)) is not None:
        mend = "this failure is not known to the log reader: look at the lines above it"
        return _report(start, FailureKind.UNKNOWN, Explained(str(thrown), mend))
    return _report(start, *_cut_off(start))


def _choose(start: _Start) -> tuple[FailureKind, Explained] | None:
    """The known failure that is the cause: the most precise, then the first."""
    candidates = []
    for index, hit in start.hits.items():
        pattern = PATTERNS[index]
        if hit.served and not pattern.always:
            if start.died is None or not start.died - _NEAR <= hit.at:
                continue
        elif start.served and not hit.served and not (start.died is not None and not start.ready):
            continue
        if start.stopping is not None and hit.at > start.stopping and start.served:
            continue
        candidates.append((pattern.rank, hit.at, index))
    if not candidates:
        return None
    _, _, index = min(candidates)
    hit, pattern = start.hits[index], PATTERNS[index]
    kind = pattern.kind
    if hit.served and kind is FailureKind.HOST_MEMORY and pattern.death and not pattern.always:
        kind = FailureKind.ENGINE_DEAD
    if hit.served and kind is FailureKind.UNKNOWN:
        kind = FailureKind.ENGINE_DEAD
    return kind, pattern.explain(Found(hit.match, hit.before, hit.phase, hit.served, start.figures))


def _deepest(start: _Start) -> Thrown | None:
    for weak in (False, True):
        if (kept := start.thrown.get(weak)) is not None:
            return kept[1]
    return start.wrapper


def _dead(start: _Start) -> Explained:
    thrown = _deepest(start)
    why = f": {thrown}" if thrown is not None and thrown.strength else ""
    when = "while it served" if start.served else "before it was ready"
    return Explained(
        f"the engine died {when}{why}", "look at the first traceback above the death; try another vLLM"
    )


def _cut_off(start: _Start) -> tuple[FailureKind, Explained]:
    if start.mark is None or not start.vllm:
        what = "the log is empty" if start.pieces == 0 else "the log holds no start of vLLM and no exception"
        return FailureKind.UNKNOWN, Explained(what, "give the whole stdout and stderr of the server")
    mark, kernels = start.mark, start.figures.silent_kernels
    cause = f"the log ends during start-up, while {mark.phase}"
    if start.stopping is not None:
        return FailureKind.STARTUP_TIMEOUT, Explained(
            f"stopped from outside while {mark.phase}", "give it more time"
        )
    if kernels and "compil" in mark.phase:
        return FailureKind.STARTUP_TIMEOUT, Explained(
            f"{cause}: {kernels} kernels are compiled on first use, for minutes and without a line, which is no hang",
            "give it more time (the result is cached for the next start), or set moe-backend to triton, which needs none",
        )
    mend = mark.mend or "give it more time; if its processes use no CPU meanwhile, it hangs"
    return mark.kind, Explained(cause, mend)


def _report(start: _Start, kind: FailureKind | None, explained: Explained) -> LogReport:
    figures = start.figures
    return LogReport(
        ready=kind is None,
        kind=kind,
        cause=explained.cause,
        mend=explained.mend,
        bounds=explained.bounds,
        kv_tokens=figures.kv_tokens,
        weights_gib=figures.weights_gib,
        startup_s=_startup_s(start),
        available_kv_gib=figures.available_kv_gib,
        graph_gib=figures.graph_gib,
        max_concurrency=figures.max_concurrency,
        version=figures.version,
        args=figures.args,
        effective=figures.effective,
        phase=start.mark.phase if start.mark else "",
        phases=figures.phases,
        served=start.served,
    )


def _startup_s(start: _Start) -> float | None:
    if start.ready_at is None:
        return None
    begin = start.first if start.last is not None else start.first_iso
    return None if begin is None else round((start.ready_at - begin) % YEAR_S, 3)
