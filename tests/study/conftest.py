"""Makes the toy importable by the tests of this room, and gives each a place of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from finished_study import Done

from tuner.study import StudyPlace  # noqa: E402


@pytest.fixture
def place(tmp_path: Path) -> StudyPlace:
    return StudyPlace("toy", tmp_path / "studies")


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(tmp_path_factory.mktemp("done"))
