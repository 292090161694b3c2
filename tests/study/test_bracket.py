"""Which loads a finalist is replayed at."""

from __future__ import annotations

import math

import pytest

from tuner.measure import STEP
from tuner.study.bracket import around, next_step


def margin(step: int, capacity: float) -> float:
    """log(P99/SLO) of a queue: flat far below the capacity, steep near it, and no more than log 2."""
    share = min(STEP ** (step - capacity) * 0.9, 0.98)
    return min(math.log(0.55 + 0.045 * share / (1.0 - share)), math.log(2.0))


@pytest.mark.parametrize("capacity", [8.0, 17.5, 30.2, 39.0])
def test_a_capacity_far_from_the_common_loads_is_found_in_few_replays(capacity: float) -> None:
    """The default carries an eighth: the loads that all share are 44 steps apart."""
    margins = {step: margin(step, capacity) for step in (0, 44)}
    for _ in range(5):
        step = next_step(margins, -20)
        if step is None:
            break
        margins[step] = margin(step, capacity)
    pair = around(margins)
    assert pair is not None and pair[0] <= math.ceil(capacity) and pair[1] - pair[0] <= 4
