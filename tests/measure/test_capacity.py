"""The search for the highest load that passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure import STEP, Capacity, LoadGrid, find_capacity

GRID = LoadGrid(1.0)


def monotone(capacity: float, *, sharpness: float = math.inf) -> Callable[[float], Any]:
    """Passes up to a load; the margin is `sharpness` x log load (infinite: it says nothing)."""

    def measure(rps: float) -> Any:
        passes = rps <= capacity * (1 + 1e-9)
        distance = math.log(rps / capacity)
        margin = sharpness * distance - 0.05 if math.isfinite(sharpness) else (-9.0 if passes else math.inf)
        return SimpleNamespace(passes=passes, margin=margin, carried_rps=None, overload=None)

    return measure


def truth(capacity: float) -> float:
    """The highest load of the grid that is within a capacity."""
    step = math.floor(math.log(capacity) / math.log(STEP) + 1e-9)
    return GRID.rps(step)


LOGS = st.floats(math.log(0.02), math.log(50))
SHARPNESS = st.sampled_from([math.inf, 0.3, 1.0, 3.0, 10.0])


@given(LOGS, LOGS, SHARPNESS)
def test_the_answer_is_the_grids_whatever_the_start(
    log_capacity: float, log_start: float, sharpness: float
) -> None:
    capacity = math.exp(log_capacity)
    found = find_capacity(monotone(capacity, sharpness=sharpness), GRID, math.exp(log_start))
    assert found.rps == pytest.approx(truth(capacity))
    assert found.bracket_rps[1] == pytest.approx(found.rps * STEP)
    assert found.at.passes
    assert not found.lost
    assert len({probe.rps for probe in found.probes}) == len(found.probes)


@pytest.mark.parametrize(("factor", "most"), [(2.0, 6), (8.0, 9)])
@pytest.mark.parametrize("sharpness", [math.inf, 1.0, 3.0, 10.0])
def test_few_replays(factor: float, most: int, sharpness: float) -> None:
    rng = np.random.default_rng(7)
    for _ in range(400):
        capacity = math.exp(rng.uniform(-3, 3))
        start = capacity * factor ** rng.uniform(-1, 1)
        found = find_capacity(monotone(capacity, sharpness=sharpness), GRID, start)
        assert found.rps == pytest.approx(truth(capacity))
        assert len(found.probes) <= most, (capacity, start)


def test_a_good_prediction_pays() -> None:
    rng = np.random.default_rng(8)
    counts = []
    for _ in range(300):
        capacity = math.exp(rng.uniform(-3, 3))
        start = capacity * 1.1 ** rng.uniform(-1, 1)
        counts.append(len(find_capacity(monotone(capacity, sharpness=3.0), GRID, start).probes))
    assert np.mean(counts) < 4.5


@given(LOGS, LOGS)
def test_a_loser_costs_one_replay(log_capacity: float, log_start: float) -> None:
    capacity, start = math.exp(log_capacity), math.exp(log_start)
    found = find_capacity(monotone(capacity), GRID, start, beat_start=True)
    if GRID.rps(GRID.step(start)) > capacity * (1 + 1e-12):
        assert found.lost
        assert (found.rps, len(found.probes)) == (0.0, 1)
    else:
        assert not found.lost
        assert found.rps == pytest.approx(truth(capacity))


def carrying(capacity: float, *, error: float = 1.0) -> Callable[[float], Any]:
    """A server that says, when it falls behind, what it carried, `error` times the truth."""

    def measure(rps: float) -> Any:
        passes = rps <= capacity * (1 + 1e-9)
        carried = None if passes else error * capacity
        return SimpleNamespace(passes=passes, margin=-9.0, carried_rps=carried, overload=None)

    return measure


def test_what_was_carried_saves_replays() -> None:
    rng = np.random.default_rng(9)
    counts: list[tuple[int, int]] = []
    for _ in range(300):
        capacity = math.exp(rng.uniform(-3, 3))
        start = capacity * 2 ** rng.uniform(-1, 1)
        told = find_capacity(carrying(capacity, error=math.exp(rng.normal(0, 0.01))), GRID, start)
        assert told.rps == pytest.approx(truth(capacity))
        counts.append((len(told.probes), len(find_capacity(monotone(capacity), GRID, start).probes)))
    told_mean, silent_mean = np.mean(counts, axis=0)
    assert max(counts)[0] <= 6 and told_mean < silent_mean - 0.5


def stopping(capacity: float, *, overload: float) -> Callable[[float], Any]:
    """A server whose failing replays are stopped early, and say so much of the overload, times the truth."""

    def measure(rps: float) -> Any:
        passes = rps <= capacity * (1 + 1e-9)
        said = None if passes else max(1.0, overload * rps / capacity)
        margin = -9.0 if passes else math.inf
        return SimpleNamespace(passes=passes, margin=margin, carried_rps=None, overload=said)

    return measure


@pytest.mark.parametrize("overload", [0.3, 1.0, 3.0])
def test_whatever_a_stopped_replay_says_six_replays_are_enough(overload: float) -> None:
    rng = np.random.default_rng(11)
    for _ in range(300):
        capacity = math.exp(rng.uniform(-3, 3))
        start = capacity * 2 ** rng.uniform(0, 1)
        found = find_capacity(stopping(capacity, overload=overload), GRID, start)
        assert found.rps == pytest.approx(truth(capacity))
        assert len(found.probes) <= 6


def test_a_stopped_replay_that_is_near_is_followed_by_a_near_load() -> None:
    rng = np.random.default_rng(12)
    near, silent = [], []
    for _ in range(300):
        capacity = math.exp(rng.uniform(-3, 3))
        start = capacity * 1.12 ** rng.uniform(0, 1)
        found = find_capacity(stopping(capacity, overload=1.0), GRID, start)
        assert len(found.probes) == 1 or found.probes[0].passes or found.probes[1].rps > 0.8 * start
        near.append(len(found.probes))
        silent.append(len(find_capacity(monotone(capacity), GRID, start).probes))
    assert np.mean(near) < np.mean(silent) - 0.7


def test_two_margins_below_the_limit_keep_the_next_load_from_going_far_beyond() -> None:
    """The third stride would be 28 steps."""
    for capacity in (0.5, 1.0, 3.0):
        found = find_capacity(monotone(capacity, sharpness=3.0), GRID, capacity / 2.0)
        assert found.rps == pytest.approx(truth(capacity))
        assert max(probe.rps for probe in found.probes) < 1.25 * capacity


@given(LOGS, LOGS, st.floats(0.05, 20.0))
def test_what_was_carried_may_be_wrong(log_capacity: float, log_start: float, error: float) -> None:
    capacity = math.exp(log_capacity)
    found = find_capacity(carrying(capacity, error=error), GRID, math.exp(log_start))
    assert found.rps == pytest.approx(truth(capacity))
    assert len(found.probes) <= 24


def test_half_a_step_further_where_few_replays_were_enough() -> None:
    rng = np.random.default_rng(10)
    for _ in range(200):
        capacity = math.exp(rng.uniform(-3, 3))
        whole = find_capacity(carrying(capacity), GRID, capacity)
        half = find_capacity(carrying(capacity), GRID, capacity, halve=True)
        assert whole.rps <= half.rps <= capacity * (1 + 1e-9)
        assert half.bracket_rps[0] == half.rps and half.at.passes
        if len(whole.probes) < 6:
            assert half.bracket_rps[1] / half.rps == pytest.approx(math.sqrt(STEP))
            assert capacity / half.rps < math.sqrt(STEP) * (1 + 1e-9)


def test_nothing_passes() -> None:
    found = find_capacity(monotone(0.0001 * STEP**-400, sharpness=1.0), GRID, 1.0)
    assert found.rps == 0.0
    assert not found.at.passes
    assert found.bracket_rps[0] == 0.0
    assert len(found.probes) < 12
    assert found.at.margin == min(probe.margin for probe in found.probes)


def test_everything_passes() -> None:
    found = find_capacity(monotone(1e30), GRID, 1.0)
    assert found.rps > 1e4
    assert found.bracket_rps[1] == math.inf
    assert len(found.probes) < 12


@given(LOGS, LOGS, st.integers(1, 8))
def test_the_limit_on_replays_holds(log_capacity: float, log_start: float, limit: int) -> None:
    capacity = math.exp(log_capacity)
    found = find_capacity(monotone(capacity), GRID, math.exp(log_start), max_replays=limit)
    assert len(found.probes) <= limit
    assert found.rps == 0.0 or found.rps <= capacity * (1 + 1e-9)


@given(st.integers(0, 2**32 - 1))
def test_noise_still_gives_adjacent_loads(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def measure(rps: float) -> Any:
        passes = bool(rps * math.exp(rng.normal(0, 0.1)) <= 3.0)
        return SimpleNamespace(passes=passes, margin=math.log(rps / 3.0), carried_rps=None, overload=None)

    found: Capacity = find_capacity(measure, GRID, 2.0)
    by_load = {probe.rps: probe.passes for probe in found.probes}
    assert found.rps == 0.0 or by_load[found.rps]
    if found.rps and math.isfinite(found.bracket_rps[1]):
        assert not by_load[found.bracket_rps[1]]
        assert found.bracket_rps[1] == pytest.approx(found.rps * STEP)


def test_the_grid_is_the_same_from_everywhere() -> None:
    grid = LoadGrid(2.5)
    assert grid.rps(0) == 2.5
    assert [grid.step(grid.rps(k)) for k in range(-50, 50)] == list(range(-50, 50))
