"""The budget: launches of the search, and engine time of which the finals' share is kept back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.spec import Budget

FINAL_LAUNCHES = 3
"""Launches that the finals need at the least: the two best and the default."""
MOST_FINAL_LAUNCHES = 6
REPLAYS_A_TRIAL = 3
"""Replays of a usual trial: most lose at the first, a winner takes five or six."""
REPLAYS_A_FINAL = 7
"""Capacity, and the most users."""
LEAST_REPLAYS_A_FINAL = 4
"""Where time is short."""
SEARCH_SHARE = 0.5
"""Of the engine time is the search's at the least: finals have nobody to compare where nothing was tried."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a launch and a replay are expected to take, in seconds of engine time."""

    launch_s: float
    replay_s: float

    def trials_s(self, trials: int) -> float:
        """Of so many trials."""
        return trials * (self.launch_s + REPLAYS_A_TRIAL * self.replay_s)

    def finals_s(self, launches: int = FINAL_LAUNCHES, replays: int = REPLAYS_A_FINAL) -> float:
        """Of the finals."""
        return launches * (self.launch_s + replays * self.replay_s)

    def replays_of(self, launch_s: float) -> int:
        """How many replays a launch can make that may take so many seconds."""
        if math.isinf(launch_s):
            return REPLAYS_A_FINAL
        return math.floor((launch_s - self.launch_s) / self.replay_s) if self.replay_s > 0.0 else 0


def kept_back_s(budget: Budget, costs: Costs) -> float:
    """Engine time kept for the finals: what they need, but no more than half of a budget."""
    wanted = costs.finals_s()
    return wanted if budget.engine_s is None else min(wanted, (1.0 - SEARCH_SHARE) * budget.engine_s)


def trials_within(budget: Budget, costs: Costs) -> int:
    """How many launches of the search the budget allows, by these costs. The baseline is always one."""
    if budget.engine_s is None:
        return budget.trials
    within = (budget.engine_s - kept_back_s(budget, costs)) / max(costs.trials_s(1), 1e-9)
    return max(1, min(budget.trials, math.ceil(within)))


def allows_trial(budget: Budget, costs: Costs, launched: int, engine_s: float) -> bool:
    """Whether another trial may start. Engine time may be overrun by the trial in hand."""
    if launched >= budget.trials:
        return False
    return budget.engine_s is None or engine_s + kept_back_s(budget, costs) < budget.engine_s


def allows_final(budget: Budget, costs: Costs, engine_s: float) -> bool:
    """Whether a further launch of the finals fits the engine time."""
    return budget.engine_s is None or engine_s + costs.finals_s(1, LEAST_REPLAYS_A_FINAL) <= budget.engine_s


def budget_left_s(budget: Budget, engine_s: float) -> float:
    """Seconds of engine time that are left; infinite without a budget."""
    return math.inf if budget.engine_s is None else max(budget.engine_s - engine_s, 0.0)
