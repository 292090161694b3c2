"""Beliefs about what flags hide, against launches whose times are known."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.engines.simulated.hidden import LAUNCH, Beliefs, Flag

FIRST = {
    "async-scheduling": True,
    "block-size": 16,
    "enable-prefix-caching": True,
    "gpu-memory-utilization": 0.92,
    "max-model-len": 40960,
    "max-num-batched-tokens": 8192,
    "max-num-seqs": 256,
    "swap-space": 4,
}
EASED = {**FIRST, "block-size": 64, "gpu-memory-utilization": 0.85, "max-model-len": 8192}


def learnt(launches: list[dict[str, object]], times: list[float], spread: float = 0.02) -> Beliefs:
    beliefs = Beliefs(FIRST)
    precision = np.eye(len(times)) / spread**2
    beliefs.learn(launches, precision, precision @ np.array(times))
    return beliefs


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("block-size", 64),
        ("gpu-memory-utilization", 0.82),
        ("max-model-len", 8192),
        ("enable-prefix-caching", False),
    ],
)
def test_asking_for_less_is_expected_to_help_before_anything_was_measured(flag: str, value: object) -> None:
    drawn = Beliefs(FIRST).draws([{**FIRST, flag: value}])[:, 0]
    assert drawn.mean() < -0.008
    assert (drawn <= 0.0).mean() > 0.9
    assert np.median(drawn) == 0.0  # most flags hide nothing


def test_either_side_of_a_switch_may_be_the_slow_one() -> None:
    drawn = Beliefs(FIRST).draws([{**FIRST, "async-scheduling": False}])[:, 0]
    assert drawn.mean() == pytest.approx(0.0, abs=0.01)
    assert 0.12 < (drawn < 0.0).mean() < 0.24 and 0.12 < (drawn > 0.0).mean() < 0.24


def test_two_launches_that_differ_in_one_flag_show_what_it_hides() -> None:
    off = {**EASED, "async-scheduling": False}
    beliefs = learnt([EASED, off], [-0.01, -0.24])
    only_off = beliefs.draws([{**FIRST, "async-scheduling": False}])[:, 0]
    assert only_off.mean() == pytest.approx(-0.22, abs=0.06)
    assert abs(beliefs.draws([EASED])[:, 0].mean()) < 0.04


def test_what_three_flags_may_have_done_is_shared_among_them() -> None:
    beliefs = learnt([EASED], [-0.3])
    drawn = beliefs.draws(
        [EASED, *({**FIRST, flag: EASED[flag]} for flag in ("block-size", "max-model-len"))]
    )
    assert drawn[:, 0].mean() == pytest.approx(-0.3, abs=0.06)
    assert drawn[:, 0].std() < 0.08
    assert (drawn[:, 1:].mean(axis=0) < -0.05).all()
    assert (drawn[:, 1:].std(axis=0) > 0.08).all()  # which of them is not known


def test_a_difference_as_small_as_that_of_launches_proves_nothing() -> None:
    off = {**FIRST, "async-scheduling": False}
    hides = (learnt([off], [-LAUNCH], spread=0.01).draws([off])[:, 0] < -0.05).mean()
    assert hides < (Beliefs(FIRST).draws([off])[:, 0] < -0.05).mean()


def test_draws_depend_on_what_was_learnt_only() -> None:
    one, other = learnt([EASED], [-0.2]), learnt([EASED], [-0.2])
    other.draws([{**EASED, "swap-space": 16}])
    assert (one.draws([EASED]) == other.draws([EASED])).all()


@pytest.mark.parametrize("name", [*FIRST, "stream-interval", "scheduling-policy"])
def test_the_odds_of_a_flag_add_up_and_the_first_launch_is_the_measure(name: str) -> None:
    flag = Flag(name, FIRST.get(name))
    assert flag.weights.sum() == pytest.approx(1.0)
    assert flag.weights[0] >= 0.6
    assert not flag.table([FIRST]).any()
