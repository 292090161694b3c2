"""Makes the toy importable by the tests of this room, and gives each a place of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy import ToyEngine, Watcher, make_job  # noqa: E402

from tuner.study import Job, StudyPlace, TuneResult, tune  # noqa: E402


@pytest.fixture
def place(tmp_path: Path) -> StudyPlace:
    return StudyPlace("toy", tmp_path / "studies")


class Done:
    """A study of 12 trials that has ended; only looked at."""

    def __init__(self, root: Path) -> None:
        self.place = StudyPlace("toy", root)
        self.engine = ToyEngine()
        self.watcher = Watcher()
        self.job: Job = make_job(self.engine, trials=12)
        self.result: TuneResult = tune(self.job, self.place, self.watcher)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(tmp_path_factory.mktemp("done"))
