"""Points of a search space stay inside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from toy import DEFAULTS, ToySpace, make_job

from tuner.study import fresh_name, study_name
from tuner.study.points import distance, draw, enumerate_all, inside, top

SPACE = ToySpace().distributions()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_drawn_points_are_inside(seed: int) -> None:
    point = draw(SPACE, np.random.default_rng(seed))
    for name, distribution in SPACE.items():
        assert distribution._contains(distribution.to_internal_repr(point[name]))


@given(value=st.floats(-1e9, 1e9))
@settings(max_examples=50, deadline=None)
def test_brought_inside(value: float) -> None:
    for distribution in (
        IntDistribution(4, 100, step=8),
        IntDistribution(4, 100, log=True),
        FloatDistribution(0.8, 0.98, step=0.01),
        CategoricalDistribution((1024, 2048, "auto")),
    ):
        found = inside(distribution, value)
        assert distribution._contains(distribution.to_internal_repr(found))
    assert inside(CategoricalDistribution(("a", True)), value) is None


def test_all_points_of_a_small_space() -> None:
    space = {"a": CategoricalDistribution((1, 2)), "b": IntDistribution(0, 9, step=3)}
    points = enumerate_all(space, 100)
    assert points is not None and len(list(points)) == 8
    assert enumerate_all(space, 7) is None and enumerate_all(SPACE, 50) is None


def test_distances_and_tops() -> None:
    assert distance(SPACE, DEFAULTS, DEFAULTS) == 0.0
    assert 0.0 < distance(SPACE, DEFAULTS, {**DEFAULTS, "max-num-seqs": 512}) < 1.0
    assert top(SPACE["gpu-memory-utilization"]) == 0.98
    assert top(CategoricalDistribution(("a",))) is None


def test_names(tmp_path: Path) -> None:
    name = study_name(make_job())
    assert name.startswith("a100-80g-kimi-k2.6-awq-") and name == study_name(make_job(trials=3))
    assert name != study_name(make_job(slo_s=20.0))
    assert fresh_name(tmp_path, "x") == "x"
    (tmp_path / "x").mkdir()
    (tmp_path / "x-2").mkdir()
    assert fresh_name(tmp_path, "x") == "x-3"
