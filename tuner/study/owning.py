"""One tuner a study: a lock on this machine; in a storage that hosts share, a claim with a sign of life."""

from __future__ import annotations

import contextlib
import fcntl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BadRequest
from tuner.study.heart import EVERY_S, Heart
from tuner.study.owner import alive, here, this_owner

if TYPE_CHECKING:
    from optuna.study import Study

OWNER, BEAT = "owner", "owner_beat"
SETTLE_S = 1.0
"""Two that claim a study at the same moment both see, after so long, who wrote last."""


@contextmanager
def owning(study: Study, folder: Path, *, shared: bool) -> Iterator[None]:
    """Own a study while the context lasts; a process that is killed leaves nothing that has to be undone.

    Raises:
        BadRequest: another process runs it.
    """
    me = {**this_owner(), "token": uuid.uuid4().hex}
    with _locked(study, folder):
        owner = study.user_attrs.get(OWNER)
        if owner and not _same(owner, me) and _lives(study, owner, shared=shared):
            raise _taken(study, owner)
        study.set_user_attr(OWNER, me)
        if not shared:
            try:
                yield
            finally:
                study.set_user_attr(OWNER, None)
            return
        time.sleep(SETTLE_S)
        check_owner(study)
        storage = study._storage
        with Heart(getattr(storage, "inner", storage), study._study_id, BEAT, lambda: {"of": me["token"]}):
            try:
                yield
            finally:
                if study.user_attrs.get(OWNER) == me:
                    study.set_user_attr(OWNER, None)


def check_owner(study: Study) -> None:
    """Raise BadRequest where another process has taken the study over."""
    owner = study.user_attrs.get(OWNER)
    if owner is not None and not _same(owner, this_owner()):
        raise _taken(study, owner)


def _same(owner: dict[str, Any], me: dict[str, Any]) -> bool:
    """Whether it is this very process, whose earlier claim was not given back."""
    return all(owner.get(key) == me[key] for key in ("host", "pid", "started"))


def _lives(study: Study, owner: dict[str, Any], *, shared: bool) -> bool:
    if here(owner) or not shared:
        return alive(owner, shared=shared)
    before = study.user_attrs.get(BEAT)
    deadline = time.monotonic() + 3.0 * EVERY_S
    while time.monotonic() < deadline:
        time.sleep(EVERY_S / 4.0)
        if study.user_attrs.get(BEAT) != before:
            return True
    return False


def _taken(study: Study, owner: dict[str, Any]) -> BadRequest:
    return BadRequest(
        f"study {study.study_name}: process {owner['pid']} on {owner['host']} is running it",
        "wait for it, or name another with --study",
    )


@contextmanager
def _locked(study: Study, folder: Path) -> Iterator[None]:
    """A lock that the system gives back when its process ends, in whatever way."""
    try:
        file = (folder / "lock").open("a")
    except OSError:  # a folder without room for it: the owner in the database has to do
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(study, study.user_attrs.get(OWNER) or _unknown()) from None
        except OSError:  # a file system without locks
            pass
        yield
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def _unknown() -> dict[str, Any]:
    return {**this_owner(), "pid": "?"}
