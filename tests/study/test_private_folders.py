"""A study whose trace carries text keeps its folder to its owner."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from toy import Watcher, make_job

from tuner.errors import BadRequest
from tuner.study import Job, StudyPlace, tune
from tuner.study.storage import make_folder


def with_text(job: Job) -> Job:
    return replace(
        job, trace=replace(job.trace, bodies=tuple({"prompt": "x"} for _ in range(len(job.trace))))
    )


def mode(place: StudyPlace) -> int:
    return stat.S_IMODE(place.folder.stat().st_mode)


def test_a_study_of_recorded_text_is_its_owners_alone(place: StudyPlace) -> None:
    tune(with_text(make_job(trials=1)), place, Watcher())
    assert mode(place) == 0o700


def test_a_folder_that_was_open_before_is_closed(place: StudyPlace) -> None:
    place.folder.mkdir(parents=True, mode=0o755)
    make_folder(with_text(make_job()), place)
    assert mode(place) == 0o700


def test_a_trace_of_lengths_leaves_the_folder_as_the_user_has_it(place: StudyPlace) -> None:
    place.folder.mkdir(parents=True)
    place.folder.chmod(0o750)
    make_folder(make_job(), place)
    assert mode(place) == 0o750


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match="cannot be written"):
        make_folder(make_job(), StudyPlace("toy", tmp_path / "file"))
