"""Deleting and renaming a study, with all that belongs to it."""

from __future__ import annotations

import re
import shutil
from typing import Any

from tuner.errors import BadRequest
from tuner.profiles import load_profile, save_profile
from tuner.study.kept import RUNNING, load_study, read_study
from tuner.study.resume import profile_file
from tuner.study.storage import StudyPlace

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def delete_study(place: StudyPlace) -> None:
    """Delete a study: its folder, and its rows where its storage is another.

    Raises:
        BadRequest: it is not there, or a process runs it.
    """
    _refuse_running(place)
    if place.storage is not None:
        study = load_study(place)
        study._storage.delete_study(study._study_id)
    if place.folder.exists():
        shutil.rmtree(place.folder)


def rename_study(place: StudyPlace, name: str) -> StudyPlace:
    """Rename a study: in its storage, its result and its profile, and its folder; returns its new place.

    Raises:
        BadRequest: it is not there, a process runs it, or the name cannot be.
    """
    if not _NAME.fullmatch(name):
        raise BadRequest(f"name {name!r}: not a name of a study", "use letters, digits, dots, dashes")
    target = StudyPlace(name, place.root, place.storage)
    if target.folder.exists():
        raise BadRequest(f"study {name}: is there already", "choose another name")
    _refuse_running(place)
    study = load_study(place)
    kept = study.user_attrs.get("result")
    if kept is not None:
        study.set_user_attr("result", _renamed(kept, name))
    profile = profile_file(place)
    if profile.exists():
        from dataclasses import replace

        save_profile(replace(load_profile(profile), study=name), profile)
    _rename_row(study._storage, place.name, name)
    if place.folder.exists():
        place.folder.rename(target.folder)
    return target


def _refuse_running(place: StudyPlace) -> None:
    if read_study(place).state == RUNNING:
        raise BadRequest(f"study {place.name}: a process is running it", "stop it first")


def _renamed(kept: dict[str, Any], name: str) -> dict[str, Any]:
    result = {**kept["result"], "study": name}
    if result.get("profile"):
        result["profile"] = {**result["profile"], "study": name}
    return {**kept, "result": result}


def _rename_row(storage: Any, before: str, after: str) -> None:
    """Optuna has no call for it: the name is one column of one row."""
    from optuna.storages import RDBStorage
    from optuna.storages._rdb.models import StudyModel
    from sqlalchemy import update
    from sqlalchemy.exc import IntegrityError

    inner = getattr(storage, "_backend", storage)
    if not isinstance(inner, RDBStorage):
        raise BadRequest(f"study {before}: its storage cannot rename", "keep the name")
    change = update(StudyModel).where(StudyModel.study_name == before).values(study_name=after)
    try:
        with inner.engine.begin() as connection:
            connection.execute(change)
    except IntegrityError as error:
        raise BadRequest(f"study {after}: its storage has one already", "choose another name") from error
