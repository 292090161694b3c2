"""Where finalists stand: whose launches say something of the others'."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.study.standing import LAUNCH_SPREAD, MOST_MARGIN, PRIOR_LAUNCHES, Contest, Standing


def standing(capacity: float, *off: float) -> Standing:
    rng = np.random.default_rng(3)
    return Standing(
        loads=(capacity / 1.05, capacity * 1.05),
        margins=(-0.2, 0.2),
        capacity=capacity,
        slope=4.0,
        draws=math.log(capacity) + 0.005 * rng.standard_normal(2000),
        redrawn=np.array([[-0.2], [0.2]]) + 0.02 * rng.standard_normal(2000),
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


LOADS = (2.0, 2.5, 3.0, 3.5, 4.0)


def among(capacity: float, bursts: np.ndarray, *, loads: tuple[float, ...] = LOADS) -> Standing:
    """On a curve of slope 4, every draw of the traffic moving the P99 at all loads by as much."""
    margins = 4.0 * (np.log(loads) - math.log(capacity))
    return Standing(
        loads=loads,
        margins=tuple(margins.tolist()),
        capacity=capacity,
        slope=4.0,
        draws=math.log(capacity) - 0.25 * bursts * np.random.default_rng(5).uniform(0.2, 1.8, len(bursts)),
        redrawn=margins[:, None] + bursts[None, :],
        deviations=(-0.01, 0.01),
        launches=2,
        metric="e2e",
    )


def test_what_a_burst_does_to_both_is_no_difference() -> None:
    """The capacities themselves move by 20% with the traffic, their ratio at the same loads does not."""
    bursts = 0.8 * np.random.default_rng(4).standard_normal(2000)
    contest = Contest({"A": among(3.4, bursts), "default": among(2.9, bursts)}, "default", rivals=1, seed=0)
    interval = contest.gain_interval("A")
    assert interval is not None
    assert contest.gain("A") == pytest.approx(3.4 / 2.9)
    assert 1.08 < interval[0] < 3.4 / 2.9 < interval[1] < 1.28
    assert np.std(contest.draws["A"]) > 0.15
    assert contest.beats_default("A") and contest.odds("A", "default") > 0.99


def test_without_a_load_in_common_the_capacities_are_compared() -> None:
    bursts = 0.8 * np.random.default_rng(4).standard_normal(2000)
    apart = among(3.4, bursts, loads=(2.1, 2.6, 3.1, 3.6, 4.1))
    contest = Contest({"A": apart, "default": among(2.9, -bursts)}, "default", rivals=1, seed=0)
    interval = contest.gain_interval("A")
    assert interval is not None and interval[0] < 0.8 and interval[1] > 1.5


def test_a_replay_that_was_stopped_compares_nothing() -> None:
    """At twice the SLO and more a P99 says only that it is."""
    bursts = 0.1 * np.random.default_rng(4).standard_normal(2000)
    far = among(1.6, bursts, loads=(1.5, 3.4))
    contest = Contest({"A": among(3.4, bursts), "default": far}, "default", rivals=1, seed=0)
    assert far.margins[1] > MOST_MARGIN
    assert contest.gain("A") == pytest.approx(3.4 / 1.6)
    assert contest.beats_default("A")
