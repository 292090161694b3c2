"""Percentiles by nearest rank and their interval, against counting and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure import MIN_REQUESTS, interval_ranks, nearest_rank, p99_interval

VALUES = st.lists(st.floats(0, 100) | st.just(math.inf), min_size=1, max_size=300)


@given(VALUES, st.integers(1, 100))
def test_nearest_rank_is_the_smallest_value_that_covers_the_share(values: list[float], percent: int) -> None:
    ordered = sorted(values)
    # integers: so many of a hundred, without rounding
    rank = next(r for r in range(1, len(ordered) + 1) if 100 * r >= percent * len(ordered))
    assert nearest_rank(np.asarray(values), percent / 100) == ordered[rank - 1]


@pytest.mark.parametrize(
    ("n", "rank"), [(1, 1), (99, 99), (100, 99), (101, 100), (1000, 990), (100_000, 99_000)]
)
def test_the_rank_of_the_p99(n: int, rank: int) -> None:
    assert nearest_rank(np.arange(1.0, n + 1), 0.99) == rank


def test_no_values() -> None:
    assert math.isnan(nearest_rank(np.empty(0), 0.99))
    assert p99_interval(np.empty(0)) == (0.0, math.inf)


def test_one_per_cent_of_failures_is_the_most_that_a_finite_p99_bears() -> None:
    values = np.ones(1000)
    values[:10] = math.inf
    assert nearest_rank(values, 0.99) == 1.0
    values[10] = math.inf
    assert nearest_rank(values, 0.99) == math.inf


def test_ranks_of_a_thousand() -> None:
    assert interval_ranks(1000) == (983, 997)


def test_the_fewest_requests_for_a_bound() -> None:
    assert MIN_REQUESTS == 368
    assert interval_ranks(367)[1] == 368
    assert interval_ranks(368)[1] == 368
    assert p99_interval(np.arange(367.0))[1] == math.inf
    assert p99_interval(np.arange(368.0))[1] == 367.0


@given(st.integers(1, 3000))
def test_ranks_enclose_with_at_least_the_confidence(n: int) -> None:
    lower, upper = interval_ranks(n)
    terms = np.asarray(
        [
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(0.99)
            + (n - k) * math.log(0.01)
            for k in range(n + 1)
        ]
    )
    share = np.exp(terms)
    assert 0 <= lower < upper <= n + 1
    # the quantile lies between the order statistics when lower <= (how many are below it) < upper
    assert share[:lower].sum() <= 0.025 + 1e-9
    assert share[upper:].sum() <= 0.025 + 1e-9
    assert lower == n or share[: lower + 1].sum() > 0.025 - 1e-9
    assert share[upper - 1 :].sum() > 0.025 - 1e-9


@pytest.mark.parametrize("n", [400, 1000])
def test_the_interval_covers_the_true_p99(n: int) -> None:
    rng = np.random.default_rng(n)
    truth = -math.log(0.01)
    trials = 1500
    inside = below = above = 0
    for row in rng.exponential(size=(trials, n)):
        low, high = p99_interval(row)
        inside += low <= truth <= high
        below += high < truth
        above += low > truth
    # three standard errors of a share of 95% and of 2.5%
    assert inside / trials > 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    for missed in (below, above):
        assert missed / trials < 0.025 + 3 * math.sqrt(0.025 * 0.975 / trials)
