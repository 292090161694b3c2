"""Faults of the database in which a study lies, as errors with one line."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.errors import BadRequest, EngineUnavailable, TuneError

AGAIN = "then give the same command again: it goes on where it stopped"
_DATABASES = ("optuna", "sqlalchemy", "sqlite3", "psycopg", "pymysql", "MySQLdb")
_SQLITE_FULL = ("disk is full", "disk I/O error")
_SQLITE_CLOSED = ("readonly database", "unable to open database")


def storage_fault(error: Exception) -> TuneError | None:
    """What the database said, below the layers that wrapped it; None for what is no fault of a database."""
    if not type(error).__module__.startswith(_DATABASES):
        return None
    causes = list(_causes(error))
    if not any(type(cause).__module__.startswith(_DATABASES[1:]) for cause in causes):
        return None
    said = " ".join(str(causes[-1]).split()) or type(causes[-1]).__name__
    if any(words in said for words in _SQLITE_FULL):
        return EngineUnavailable(f"the study's database: {said}", f"free some space, {AGAIN}")
    if any(words in said for words in _SQLITE_CLOSED):
        return BadRequest(f"the study's database: {said}", "name a folder that can be written with --studies")
    return EngineUnavailable(f"the study's storage does not answer: {said}", f"bring it back, {AGAIN}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__ or seen.__context__
