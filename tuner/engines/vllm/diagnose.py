"""From a server's log to the failure that the study is told."""

from __future__ import annotations

from pathlib import Path

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm.log_tail import read_tail
from tuner.engines.vllm.logs import LogReport, read_log

_SIGKILL = (-9, 137)


def report_of(log: Path) -> LogReport:
    """What the log says, so far as it has come."""
    return read_log(read_tail(log))


def exited(log: Path, code: int, seconds: float, *, serving: bool = False) -> LaunchFailure:
    """The server is gone: the log's cause, else what the exit code says."""
    when = "while it served" if serving else "before it was ready"
    said = f"the server ended with exit code {code} {when}"
    fallback = FailureKind.ENGINE_DEAD if serving else FailureKind.UNKNOWN
    mend = ""
    if code in _SIGKILL:
        said, mend = f"the server was killed (SIGKILL) {when}", "look for the kernel's out-of-memory killer"
        fallback = FailureKind.HOST_MEMORY
    return _failure(log, said, fallback, mend, seconds)


def engine_dead(log: Path, seconds: float) -> LaunchFailure:
    """The API server lives, its engine does not (/health 503)."""
    return _failure(log, "the engine died while it served", FailureKind.ENGINE_DEAD, "", seconds)


def stuck(log: Path, kind: FailureKind, said: str, mend: str, seconds: float) -> LaunchFailure:
    """It lives and does not get on; an error in the log that explains it goes before."""
    return _failure(log, said, kind, mend, seconds)


def _failure(log: Path, said: str, fallback: FailureKind, mend: str, seconds: float) -> LaunchFailure:
    report = report_of(log)
    kind = report.kind
    if kind is None or (kind is FailureKind.UNKNOWN and fallback is not FailureKind.UNKNOWN):
        cause = said if not report.cause else f"{said}: {report.cause}"
        return LaunchFailure(fallback, cause, mend=mend or report.mend, log=log, seconds=seconds)
    return LaunchFailure(
        kind, report.cause or said, mend=report.mend, bounds=tuple(report.bounds), log=log, seconds=seconds
    )
