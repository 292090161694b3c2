"""What a database says under the layers that wrap it."""

from __future__ import annotations

import sqlite3

import pytest
from optuna.exceptions import DuplicatedStudyError, StorageInternalError
from sqlalchemy.exc import OperationalError, PendingRollbackError

from tuner.errors import BadRequest, EngineUnavailable
from tuner.study.patient import wait_for
from tuner.study.storage_faults import storage_fault


def wrapped(said: str) -> Exception:
    inner = OperationalError("INSERT", {}, sqlite3.OperationalError(said))
    try:
        try:
            raise inner
        except OperationalError as error:
            raise StorageInternalError("An exception is raised during the commit.") from error
    except StorageInternalError as error:
        return error


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("database or disk is full", EngineUnavailable),
        ("disk I/O error", EngineUnavailable),
        ("attempt to write a readonly database", BadRequest),
        ("unable to open database file", BadRequest),
        ("database is locked", EngineUnavailable),
    ],
)
def test_the_innermost_cause_is_said(said: str, kind: type[Exception]) -> None:
    fault = storage_fault(wrapped(said))
    assert isinstance(fault, kind) and said in str(fault)


def test_a_connection_cut_within_a_transaction_is_waited_for() -> None:
    asked: list[str] = []

    def ask() -> str:
        asked.append("again")
        if len(asked) > 2:
            return "answer"
        try:
            raise PendingRollbackError("Can't reconnect until invalid transaction is rolled back.")
        except PendingRollbackError as error:
            raise StorageInternalError("An exception is raised during the commit.") from error

    assert wait_for(ask, lambda text: None) == "answer" and len(asked) == 3


def test_other_exceptions_are_not_explained_away() -> None:
    assert storage_fault(ValueError("no")) is None
    assert storage_fault(DuplicatedStudyError("twice")) is None
