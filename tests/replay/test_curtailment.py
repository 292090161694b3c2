"""Curtailment: certain exactly when no continuation could still meet the SLO."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure import nearest_rank
from tuner.replay import Curtailment, OverWatch

LIMITS = {"e2e": 1.0, "ttft": 0.5, "tpot": 0.05}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[float], list[tuple[float, float, float, bool]]]:
    """Schedules, and for each request when its first and last token came, its TPOT, and whether it failed."""
    n = draw(st.integers(1, 220))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    share = draw(st.sampled_from([0.0, 0.005, 0.01, 0.02, 0.3]))
    scheduled = np.sort(rng.uniform(0, 5, n))
    first = np.where(rng.random(n) < share, rng.uniform(0.4, 0.8, n), rng.uniform(0, 0.4, n))
    last = first + np.where(rng.random(n) < share, rng.uniform(0.4, 1.5, n), 0.3)
    tpot = np.where(rng.random(n) < share, rng.uniform(0.04, 0.08, n), 0.01)
    failed = rng.random(n) < share / 2
    rows = zip(first.tolist(), last.tolist(), tpot.tolist(), failed.tolist(), strict=True)
    return scheduled.tolist(), list(rows)


@given(histories(), st.floats(0.0, 8.0))
def test_certain_iff_too_many_are_over(
    history: tuple[list[float], list[tuple[float, float, float, bool]]], now: float
) -> None:
    scheduled, rows = history
    n = len(rows)
    watch = OverWatch(Curtailment.at(LIMITS, n), n, np.asarray(scheduled))
    events = []
    for index, (first, last, _, failed) in enumerate(rows):
        if not failed:
            events.append((scheduled[index] + first, 0, index))
        events.append((scheduled[index] + last, 1, index))
    over = {"e2e": set(), "ttft": set(), "tpot": set()}
    for at, what, index in sorted(events):
        if at > now:
            break
        first, last, tpot, failed = rows[index]
        if what == 0:
            watch.first(index, first)
            if first > LIMITS["ttft"]:
                over["ttft"].add(index)
            continue
        watch.done(index, last, not failed, tpot)
        for name, value in (("e2e", last), ("tpot", tpot)):
            if failed or value > LIMITS[name]:
                over[name].add(index)
        if failed:
            over["ttft"].add(index)
    for index, (first, last, _, failed) in enumerate(rows):
        waited = now - scheduled[index]
        if waited > LIMITS["e2e"] and scheduled[index] + last > now:
            over["e2e"].add(index)
        begun = not failed and scheduled[index] + first <= now
        ended = scheduled[index] + last <= now
        if waited > LIMITS["ttft"] and not begun and not ended:
            over["ttft"].add(index)
    assert watch.certain(now) is (max(map(len, over.values())) > n // 100)


@given(st.integers(1, 500), st.integers(0, 20))
def test_the_rule_is_the_nearest_rank(n: int, over: int) -> None:
    over = min(over, n)
    values = np.concatenate([np.full(n - over, 0.5), np.full(over, 2.0)])
    watch = OverWatch(Curtailment.at({"e2e": 1.0}, n), n)
    for index, value in enumerate(values.tolist()):
        watch.done(index, value, True)
    assert watch.certain(0.0) is (nearest_rank(values, 0.99) > 1.0)


def test_nothing_is_certain_without_a_limit() -> None:
    watch = OverWatch(Curtailment.at({}, 3), 3, np.zeros(3))
    for index in range(3):
        watch.done(index, 1e9, True)
    assert not watch.certain(1e9)
