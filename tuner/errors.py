"""What a user is told when a job cannot be done: what, how to mend it, and the exit code of the design."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    OWN_FAULT = 1
    """An exception that nothing foresaw; the design's codes begin at 2."""
    BAD_REQUEST = 2
    NOTHING_MEETS_SLO = 3
    INFEASIBLE = 4
    ENGINE_UNAVAILABLE = 5
    CANNOT_TELL = 6
    INTERRUPTED = 130


class TuneError(Exception):
    """An error with one clear line: `what` happened and where, `mend` says how to put it right."""

    exit_code: Exit = Exit.BAD_REQUEST

    def __init__(self, what: str, mend: str = "") -> None:
        super().__init__(f"{what}: {mend}" if mend else what)
        self.what = what
        self.mend = mend


class BadRequest(TuneError):
    """The request is wrong: an option, a trace, a space file, a flag (exit 2)."""


class Infeasible(TuneError):
    """Arithmetic says that it cannot work (exit 4)."""

    exit_code = Exit.INFEASIBLE


class EngineUnavailable(TuneError):
    """The engine cannot be run here (exit 5)."""

    exit_code = Exit.ENGINE_UNAVAILABLE
