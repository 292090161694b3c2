"""What has been seen of one start of a server, in bounded memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tuner.engines.vllm.logs import causes_config, causes_machine, causes_memory, causes_model
from tuner.engines.vllm.logs.exceptions import DEATH, FAILED_START, Thrown, thrown_in
from tuner.engines.vllm.logs.figures import Figures, take_figures
from tuner.engines.vllm.logs.lines import Level, Piece, continued
from tuner.engines.vllm.logs.pattern import CONSEQUENCE, Pattern
from tuner.engines.vllm.logs.phases import EARLY, LISTENING, READY, SERVING, SHUTDOWN, STATISTICS, Mark

PATTERNS: tuple[Pattern, ...] = (
    *causes_memory.PATTERNS,
    *causes_config.PATTERNS,
    *causes_model.PATTERNS,
    *causes_machine.PATTERNS,
)
"""Every known failure; the order decides only between patterns of one rank that match the same message."""
_QUIET = tuple(index for index, pattern in enumerate(PATTERNS) if pattern.quiet)
_WRAPPED_LINES = 5
_SOURCE_LINES = ('  File "', "    ")
"""How the lines of a traceback begin that show code."""
_ALL = tuple(range(len(PATTERNS)))


@dataclass(slots=True)
class Hit:
    """A known failure's message: its number, rank, match, the message before it, the phase it fell in."""

    at: int
    rank: int
    match: re.Match[str]
    before: str
    phase: str
    served: bool
    body: str
    text: str
    """The message with the few that came after it: some run over several lines."""


@dataclass(slots=True)
class Start:
    """One start: figures, known failures, exceptions, and the messages that changed its state, by "
    "number."""

    figures: Figures = field(default_factory=Figures)
    hits: dict[int, Hit] = field(default_factory=dict)
    thrown: dict[tuple[bool, int], Thrown] = field(default_factory=dict)
    """The first exception by (after a process said that it failed, strength)."""
    wrapped: dict[int, Hit] = field(default_factory=dict)
    failed: int | None = None
    died: int | None = None
    stopping: int | None = None
    mark: Mark | None = None
    served: bool = False
    whole: bool = False
    """Its beginning is in the log."""
    still: int = 0
    """Statistics in a row with requests there and no token read or written."""
    running: int = 0
    waiting: int = 0
    pieces: int = 0
    first: float | None = None
    last: float | None = None
    first_iso: float | None = None
    last_iso: float | None = None
    ready_at: float | None = None
    listening_at: float | None = None
    """vLLM's own last line before uvicorn's, whose lines may be switched off."""

    def over(self) -> bool:
        """Whether this start has come to some end, so that a new banner begins another."""
        return (
            self.served or self.failed is not None or self.died is not None or bool(self.hits or self.thrown)
        )

    def take(self, piece: Piece, mark: Mark | None, before: str) -> None:
        """Take in the next message; `mark` is the phase that it begins, `before` the message before it."""
        body = piece.body
        self.pieces += 1
        self._clock(piece)
        if self.wrapped:
            self._go_on(body)
        if not body or (piece.stamp is not None and body.startswith(_SOURCE_LINES)):
            return
        if not self.served:
            take_figures(self.figures, body)
        if mark is not None:
            self._phase(mark, body)
        elif not self.served and SERVING.search(body):
            self.served = True
        if self.served and (said := STATISTICS.search(body)) is not None:
            self._statistics(said)
        if self.stopping is None and self.died is None and SHUTDOWN.search(body):
            self.stopping = self.pieces
        if piece.level <= Level.WARNING:
            if piece.level is not Level.DEBUG:
                self._failures(body, before, _QUIET, CONSEQUENCE)
            return
        self._failures(body, before, _ALL, 0)
        if self.failed is None and FAILED_START.search(body):
            self.failed = self.pieces
        if self.died is None and self.stopping is None and DEATH.search(body):
            self.died = self.pieces
        if (thrown := thrown_in(body)) is not None:
            self._note(thrown)

    def exception(self) -> Thrown | None:
        """The true cause among the exceptions: the first after a process said that it failed, else the first;
        one that mostly follows, or a wrapper, only where there is no other.
        """
        for strength in (2, 1, 0):
            for after in (True, False):
                if (kept := self.thrown.get((after, strength))) is not None:
                    return kept
        return None

    def _go_on(self, body: str) -> None:
        for index, hit in list(self.wrapped.items()):
            hit.text += " " + continued(hit.body, body[:400])
            if self.pieces - hit.at >= _WRAPPED_LINES:
                del self.wrapped[index]

    def _phase(self, mark: Mark, body: str) -> None:
        self.mark = mark
        self.whole = self.whole or mark.phase in EARLY
        if mark.phase == READY and not self.served:
            self.ready_at = self.last if self.last is not None else self.last_iso
        self.served = self.served or mark.phase == READY
        if mark.phase == LISTENING and "vLLM" in body and self.listening_at is None:
            self.listening_at = self.last if self.last is not None else self.last_iso

    def _statistics(self, said: re.Match[str]) -> None:
        self.running, self.waiting = int(said["running"]), int(said["waiting"])
        stands = float(said["prompt"]) == float(said["output"]) == 0.0 and self.running + self.waiting > 0
        self.still = self.still + 1 if stands else 0

    def _note(self, thrown: Thrown) -> None:
        # While a server is up its log holds the errors of single requests: the latest before a death counts.
        after = self.failed is not None or self.died is not None
        # A missing module is mostly handled, but not where a process failed of it.
        key = (after, 2 if after and thrown.missing_module else thrown.strength)
        if key not in self.thrown or (self.served and self.died is None):
            self.thrown[key] = thrown

    def _failures(self, body: str, before: str, among: tuple[int, ...], rank: int) -> None:
        renew = self.served and self.died is None
        for index in among:
            if index in self.hits and not renew:
                continue
            pattern = PATTERNS[index]
            if (match := pattern.line.search(body)) is None:
                continue
            if pattern.death and not rank and self.died is None and self.stopping is None:
                self.died = self.pieces
            phase = self.mark.phase if self.mark else ""
            hit = Hit(
                self.pieces, pattern.rank + rank, match, before, phase, self.served, body[:400], body[:4000]
            )
            self.hits[index] = hit
            if pattern.wrapped:
                self.wrapped[index] = hit

    def _clock(self, piece: Piece) -> None:
        if piece.stamp is not None:
            self.first = piece.stamp if self.first is None else self.first
            self.last = piece.stamp
        if piece.iso is not None:
            self.first_iso = piece.iso if self.first_iso is None else self.first_iso
            self.last_iso = piece.iso
