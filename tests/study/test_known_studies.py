"""A sample of the studies whose truth is known; `tests/benchmarks/finals.py` runs 800 of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_studies import Outcomes, scripted, searched


@pytest.fixture(scope="module")
def something(tmp_path_factory: pytest.TempPathFactory) -> list[Outcomes]:
    return [scripted(seed, True, tmp_path_factory.mktemp("something")) for seed in range(200, 209)]


def test_the_default_is_kept_where_nothing_beats_it(tmp_path: Path) -> None:
    rows = [scripted(seed, False, tmp_path) for seed in range(200, 206)]
    assert sum(row.recommended == "default" for row in rows) >= 5
    assert sum(row.carries for row in rows) >= 5


def test_the_true_gain_lies_in_the_interval(something: list[Outcomes]) -> None:
    tuned = [row for row in something if row.recommended == "tuned"]
    assert len(tuned) >= 2
    assert sum(row.interval[0] <= row.gain <= row.interval[1] for row in tuned) >= len(tuned) - 1
    assert all(row.interval[0] > 1.0 for row in tuned)


def test_the_exported_load_meets_the_slo_in_truth(something: list[Outcomes]) -> None:
    assert sum(row.carries for row in something) >= len(something) - 1
    assert all(0.7 < row.load_share < 1.05 for row in something)


def test_through_the_whole_of_tune(tmp_path: Path) -> None:
    row = searched(3, True, tmp_path)
    assert row.carries and row.recommended in ("tuned", "default")
