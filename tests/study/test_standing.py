"""Where finalists stand: whose launches say something of the others'."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.study.standing import LAUNCH_SPREAD, PRIOR_LAUNCHES, Contest, Standing


def standing(capacity: float, *off: float) -> Standing:
    rng = np.random.default_rng(3)
    return Standing(
        loads=(capacity / 1.05, capacity * 1.05),
        margins=(-0.2, 0.2),
        capacity=capacity,
        slope=4.0,
        draws=math.log(capacity) + 0.005 * rng.standard_normal(2000),
        deviations=off,
        launches=max(len(off), 1),
        metric="e2e",
    )


def test_a_finalist_whose_launches_differ_far_is_judged_by_itself() -> None:
    """Where the default's P99 hardly rises with the load, its capacity is anywhere: the winner's is not."""
    calm = {"A": standing(3.0, -0.02, 0.02), "B": standing(2.9)}
    contest = Contest({**calm, "default": standing(0.3, -0.3, 0.3)}, "default", rivals=2, seed=0)
    assert contest.alone == {"default"}
    assert contest.spread("A") == contest.spread("B") and contest.spread("A")[0] < LAUNCH_SPREAD
    assert contest.spread("default")[0] > 0.15
    assert contest.sure_load("A") > 0.85 * 3.0
    assert contest.sure_load("default") < 0.7 * 0.3


def test_where_most_differ_far_launches_differ_far() -> None:
    wild = {label: standing(3.0, -0.2, 0.2) for label in ("A", "B", "default")}
    contest = Contest(wild, "default", rivals=2, seed=0)
    squares = PRIOR_LAUNCHES * LAUNCH_SPREAD**2 + 3 * 2 * 0.2**2
    assert not contest.alone
    assert contest.spread("A") == pytest.approx((math.sqrt(squares / 8), 8.0))


def test_odds_are_those_of_the_draws() -> None:
    contest = Contest({"A": standing(3.3), "default": standing(3.0)}, "default", rivals=2, seed=0)
    assert 0.9 < contest.odds("A", "default") < 1.0
    assert contest.odds("A", "default") + contest.odds("default", "A") == pytest.approx(1.0)
