"""From a server's log to the failure that the study is told."""

from __future__ import annotations

from pathlib import Path

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm.log_tail import read_tail
from tuner.engines.vllm.logs import LogReport, read_log

_SIGKILL = (-9, 137)
_GUESSED = frozenset({FailureKind.UNKNOWN, FailureKind.STARTUP_TIMEOUT, FailureKind.HUNG})
"""Kinds that a log shows by where it ends; who watched the server knows better."""


def report_of(log: Path) -> LogReport:
    """What the log says, so far as it has come."""
    return read_log(read_tail(log))


def exited(log: Path, code: int, seconds: float, *, serving: bool = False) -> LaunchFailure:
    """The server is gone: the log's cause, else what the exit code says."""
    when = "while it served" if serving else "before it was ready"
    said, mend = f"the server ended with exit code {code} {when}", ""
    kind = FailureKind.ENGINE_DEAD if serving else FailureKind.UNKNOWN
    if code in _SIGKILL:
        said, mend = f"the server was killed (SIGKILL) {when}", "look for the kernel's out-of-memory killer"
        if not serving:  # once it serves, a kill has many senders
            kind = FailureKind.HOST_MEMORY
    return _failure(log, said, kind, mend, seconds)


def engine_dead(log: Path, seconds: float) -> LaunchFailure:
    """The API server lives, its engine does not (/health 503)."""
    return _failure(log, "the engine died while it served", FailureKind.ENGINE_DEAD, "", seconds)


def stuck(log: Path, kind: FailureKind, said: str, mend: str, seconds: float) -> LaunchFailure:
    """It lives and does not get on; an error in the log that explains it goes before."""
    return _failure(log, said, kind, mend, seconds)


def _failure(log: Path, said: str, kind: FailureKind, mend: str, seconds: float) -> LaunchFailure:
    report = report_of(log)
    if report.kind is None or report.kind in _GUESSED:
        thrown = report.kind is FailureKind.UNKNOWN and not report.cause.startswith("the log ")
        cause = f"{said}: {report.cause}" if thrown else said
        where = f", while {report.phase}" if report.phase and not thrown and not report.served else ""
        return LaunchFailure(kind, cause + where, mend=mend or report.mend, log=log, seconds=seconds)
    return LaunchFailure(
        report.kind, report.cause or said, mend=report.mend, bounds=report.bounds, log=log, seconds=seconds
    )
