"""Which loads a finalist is replayed at: two that all share, then those that its capacity lies between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from tuner.measure import STEP, Judgement, Verdict
from tuner.study.load import Offer
from tuner.study.standing import margin_of

BELOW, ABOVE = 2, 2
"""Grid steps from an expected capacity to the loads around it."""
WIDEST = 2
"""Steps between the loads on both sides of the SLO: P99 can turn up sharply there."""
_SAFE = 1  # and a load this many steps further down, at which the SLO is surely met
_USUAL_SLOPE = 5.0  # of log P99 by the logarithm of the load, near the capacity
_LONGEST = 8
_TRIES = 40
_FAR = 4 * WIDEST


def common_steps(offer: Offer, expected: Iterable[float]) -> tuple[int, int]:
    """The two loads that all finalists are replayed at, as steps of the grid, around their capacities."""
    steps = [offer.grid.step(load) for load in expected if load > 0.0] or [offer.grid.step(offer.start)]
    low = max(min(steps) - BELOW, lowest_step(offer))
    return low, max(max(steps) + ABOVE, low + 1)


def lowest_step(offer: Offer) -> int:
    """The lowest load worth a replay."""
    return math.ceil(round(math.log(offer.floor / offer.grid.anchor_rps) / math.log(STEP), 6))


def measure_around(
    offer: Offer, judge: Callable[[float], Judgement], first: Iterable[int], *, more: int
) -> None:
    """Replay at the first steps, then at up to `more` others, until the SLO lies between two near loads."""
    margins: dict[int, float] = {}
    known: dict[float, Judgement] = {}

    def measure(step: int) -> bool:
        """Whether the replay says anything; neighbouring steps can be the same number of users."""
        load = offer.snap(offer.grid.rps(step))
        if load not in known:
            known[load] = judge(load)
        if known[load].verdict is Verdict.INVALID:
            return False
        margins[step] = margin_of(known[load])
        return True

    for step in first:
        measure(step)
    most = len(known) + more
    for _ in range(_TRIES):
        further = next_step(margins, lowest_step(offer))
        if further is None or len(known) >= most or not measure(further):
            return


def next_step(margins: Mapping[int, float], lowest: int) -> int | None:
    """Where to replay next, by log(P99 / SLO) at the steps so far; None where they are enough."""
    if not margins:
        return None
    pair = around(margins)
    if pair is None:
        low, high = min(margins), max(margins)
        if margins[low] > 0.0:
            return max(lowest, low - _stride(margins[low], len(margins))) if low > lowest else None
        return high + _stride(margins[high], len(margins))
    low, high = pair
    at = low + (high - low) * -margins[low] / (margins[high] - margins[low])
    if high - low > WIDEST:
        if high - low > _FAR:
            # P99 turns up near the capacity: the line through a load far below falls short of it
            at = (at + high - margins[high] / _USUAL_SLOPE / math.log(STEP)) / 2.0
        return min(max(round(at), low + 1), high - 1)
    below = math.floor(at) - _SAFE
    return below if lowest <= below < min(margins) else None


def around(margins: Mapping[int, float]) -> tuple[int, int] | None:
    """The lowest step over the SLO and the highest below it that is within."""
    failing = [step for step, margin in margins.items() if margin > 0.0]
    within = [
        step for step, margin in margins.items() if margin <= 0.0 and (not failing or step < min(failing))
    ]
    return (max(within), min(failing)) if failing and within else None


def _stride(margin: float, tried: int) -> int:
    """Steps to go on where all loads lie on one side: by the margin, and ever more."""
    steps = math.ceil(abs(margin) / _USUAL_SLOPE / math.log(STEP)) + 1
    return min(max(steps, 2) + 2 * max(tried - 2, 0), _LONGEST)
