"""The budget: launches of the search, and engine time of which the finals' share is kept back."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spec import Budget

FINAL_LAUNCHES = 3
"""Launches that the finals need at the least: the two best and the default."""
MOST_FINAL_LAUNCHES = 6
REPLAYS_A_TRIAL = 3
"""Replays of a usual trial: most lose at the first, a winner takes five or six."""
REPLAYS_A_FINAL = 7
"""Capacity, and the most users."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a launch and a replay are expected to take, in seconds of engine time."""

    launch_s: float
    replay_s: float

    def trials_s(self, trials: int) -> float:
        """Of so many trials."""
        return trials * (self.launch_s + REPLAYS_A_TRIAL * self.replay_s)

    def finals_s(self, launches: int = FINAL_LAUNCHES) -> float:
        """Of the finals."""
        return launches * (self.launch_s + REPLAYS_A_FINAL * self.replay_s)


def allows_trial(budget: Budget, costs: Costs, launched: int, engine_s: float) -> bool:
    """Whether another trial may start. Engine time may be overrun by the trial in hand."""
    if launched >= budget.trials:
        return False
    return budget.engine_s is None or engine_s + costs.finals_s() < budget.engine_s


def allows_final(budget: Budget, costs: Costs, engine_s: float) -> bool:
    """Whether a further launch of the finals fits the engine time."""
    return budget.engine_s is None or engine_s + costs.finals_s(1) <= budget.engine_s
