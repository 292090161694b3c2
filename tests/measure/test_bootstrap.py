"""The block bootstrap: what it draws, and how often its intervals hold on correlated latencies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.measure import (
    block_bootstrap,
    block_length,
    isotonic,
    load_at_limit,
    nearest_rank,
    p99_rows,
)


def autoregressive(n: int, phi: float, seed: int, series: int = 1) -> np.ndarray:
    """Rows of standard normal values, each correlated by `phi` with the one before."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n, series)) * math.sqrt(1 - phi**2)
    values = np.empty((n, series))
    at = rng.normal(size=series)
    for index in range(n):
        at = values[index] = phi * at + noise[index]
    return values.T


def draws_of(latencies: np.ndarray, *, block: int, draws: int) -> np.ndarray:
    """The latencies that are drawn, one row a draw."""
    seen: list[np.ndarray] = []

    def keep(rows: np.ndarray) -> np.ndarray:
        seen.append(rows)
        return rows[:, 0]

    block_bootstrap([latencies], block=block, draws=draws, seed=1, statistic=keep)
    (rows,) = seen
    return rows


def means(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows.mean(axis=-1))


@given(st.lists(st.floats(0, 9) | st.just(math.inf), min_size=1, max_size=40), st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_all_draws_are_blocks_of_neighbours(values: list[float], block: int) -> None:
    n = len(values)
    rows = draws_of(np.arange(n, dtype=float), block=block, draws=7)
    assert rows.shape == (7, n)
    size = min(block, n)
    steps = (np.diff(rows, axis=1) % n == 1 % n) | (np.arange(1, n) % size == 0)
    assert steps.all()
    drawn = block_bootstrap([np.asarray(values)], block=block, draws=7, seed=1)[:, 0]
    assert set(drawn.tolist()) <= set(values)


def test_all_configurations_get_the_same_blocks() -> None:
    x = autoregressive(500, 0.5, 1)[0]
    three = [x, 3.0 * x, x + 1.0]
    drawn = block_bootstrap(three, block=9, draws=50, seed=2, statistic=means)
    assert drawn.shape == (50, 3)
    assert np.allclose(drawn[:, 1], 3.0 * drawn[:, 0])
    assert np.allclose(drawn[:, 2], drawn[:, 0] + 1.0)
    assert np.array_equal(drawn, block_bootstrap(three, block=9, draws=50, seed=2, statistic=means))


def test_repeats_are_pooled() -> None:
    x = np.arange(100.0)
    rows = draws_of(np.stack([x, x + 1000]), block=5, draws=4)
    assert rows.shape == (4, 200)
    assert np.array_equal(rows[:, 100:], rows[:, :100] + 1000)


def test_only_the_same_requests() -> None:
    for latencies in ([np.zeros(3), np.zeros(4)], [np.zeros(0)], []):
        with pytest.raises(ValueError, match="same requests"):
            block_bootstrap(latencies, block=1, draws=1, seed=0)


@given(st.lists(st.floats(0, 9) | st.just(math.inf), min_size=1, max_size=300))
def test_p99_of_rows_is_the_nearest_rank(values: list[float]) -> None:
    rows = np.array([values, values[::-1]])
    assert p99_rows(rows).tolist() == [nearest_rank(np.asarray(values), 0.99)] * 2


def test_large_samples_are_drawn_in_parts() -> None:
    x = np.random.default_rng(0).exponential(size=300_000)
    drawn = block_bootstrap([x], block=70, draws=40, seed=0)[:, 0]
    assert drawn.mean() == pytest.approx(math.log(100), rel=0.01)
    assert 0 < drawn.std() < 0.05


def test_blocks_grow_with_the_correlation() -> None:
    lengths = [
        np.median([block_length([autoregressive(2000, phi, seed)[0]]) for seed in range(9)])
        for phi in (0.0, 0.6, 0.9, 0.98)
    ]
    assert lengths == sorted(lengths) and len(set(lengths)) == 4, lengths
    assert lengths[0] <= 2 * 2000 ** (1 / 3)
    assert lengths[-1] <= 200
    independent, bound = autoregressive(2000, 0.0, 1)[0], autoregressive(2000, 0.95, 1)[0]
    assert block_length([independent, bound]) == block_length([bound]) > block_length([independent])


def test_block_lengths_at_the_edges() -> None:
    assert block_length([np.zeros(1)]) == 1
    assert 1 <= block_length([np.full(100, 3.0)]) <= 10
    assert 1 <= block_length([np.full(50, math.inf)]) <= 5
    assert block_length([np.arange(1000.0)]) == 100
    assert 10 <= block_length([np.where(np.arange(1000) % 7, 1.0, math.inf)]) <= 100


def interval(drawn: np.ndarray) -> tuple[float, float]:
    """The 95% interval of a statistic's draws."""
    return nearest_rank(drawn, 0.025), nearest_rank(drawn, 0.975)


def covered(phi: float, *, blocks: bool, studies: int = 100, n: int = 2000) -> float:
    """How often the 95% interval of a P99 holds the true one."""
    hits = 0
    for seed, row in enumerate(autoregressive(n, phi, 11, studies)):
        latency = np.exp(row)
        block = block_length([latency]) if blocks else 1
        low, high = interval(block_bootstrap([latency], block=block, draws=300, seed=seed)[:, 0])
        hits += low <= math.exp(2.3263) <= high
    return hits / studies


def test_coverage_of_independent_latencies() -> None:
    assert covered(0.0, blocks=True) >= 0.9


def test_coverage_of_correlated_latencies() -> None:
    """What independent draws take for an interval of 95% holds in half of the cases."""
    assert covered(0.9, blocks=True) >= 0.78
    assert covered(0.9, blocks=False) <= 0.7


def test_a_paired_comparison_sees_what_an_unpaired_one_cannot() -> None:
    latency = np.exp(0.5 * autoregressive(1000, 0.9, 3)[0])
    slower = latency * 1.1 * np.exp(np.random.default_rng(0).normal(0, 0.05, 1000))
    first, second = block_bootstrap([latency, slower], block=30, draws=500, seed=1).T
    low, high = interval(second / first)
    assert 1.0 < low <= 1.1 <= high
    alone = interval(first)
    assert alone[1] / alone[0] > 1.1


def test_no_difference_where_there_is_none() -> None:
    told = 0
    for seed in range(60):
        common, one, other = np.exp(0.4 * autoregressive(1000, 0.8, seed, 3))
        both = [common * one, common * other]
        first, second = block_bootstrap(both, block=block_length(both), draws=300, seed=seed).T
        low, high = interval(second / first)
        told += low > 1.0 or high < 1.0
    assert told <= 9


# between loads


@given(st.floats(0.5, 20), st.floats(0.2, 5), st.integers(2, 6))
def test_a_line_is_met_exactly(capacity: float, steepness: float, n: int) -> None:
    loads = capacity * np.geomspace(0.7, 1.4, n)
    p99 = 10.0 * (loads / capacity) ** steepness
    assert load_at_limit(loads, p99, 10.0) == pytest.approx(capacity)
    assert load_at_limit(loads, np.stack([p99, p99]), 10.0).shape == (2,)


def test_beyond_the_loads_the_line_ends_soon() -> None:
    loads = np.array([1.0, 2.0])
    assert load_at_limit(loads, np.array([1.0, 1.1]), 10.0) == pytest.approx(2.2)
    assert load_at_limit(loads, np.array([50.0, 60.0]), 10.0) == pytest.approx(1 / 1.1)
    assert load_at_limit(loads, np.array([9.0, 9.0]), 10.0) == pytest.approx(2.2)
    assert load_at_limit(loads, np.array([11.0, 11.0]), 10.0) == pytest.approx(1 / 1.1)


def test_failures_between_loads_count_for_the_lower_one() -> None:
    loads = np.array([1.0, 2.0, 3.0])
    assert load_at_limit(loads, np.array([1.0, 5.0, math.inf]), 10.0) == pytest.approx(2.0)
    assert load_at_limit(loads, np.array([math.inf] * 3), 10.0) == pytest.approx(1 / 1.1)
    assert load_at_limit(loads[:1], np.array([3.0]), 10.0) == pytest.approx(1.0)


@given(st.lists(st.floats(-5, 5) | st.just(math.inf), min_size=1, max_size=12))
def test_isotonic_is_monotone_and_keeps_what_is(values: list[float]) -> None:
    y = isotonic(np.asarray(values))
    assert len(y) == len(values) and (y[1:] >= y[:-1]).all()
    assert np.array_equal(isotonic(y), y)
    if math.inf not in values:
        assert y.mean() == pytest.approx(np.mean(values), abs=1e-9)
    assert np.array_equal(isotonic(np.sort(values)), np.sort(values))


@given(st.lists(st.floats(0, 9) | st.just(math.inf), min_size=2, max_size=60), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_the_quick_p99_is_the_plain_one(values: list[float], block: int) -> None:
    pooled = np.asarray(values[: len(values) // 2 * 2]).reshape(2, -1)
    for table in (pooled, pooled[0]):
        quick = block_bootstrap([table], block=block, draws=30, seed=4)
        plain = block_bootstrap([table], block=block, draws=30, seed=4, statistic=lambda r: p99_rows(r))
        assert np.array_equal(quick, plain)
