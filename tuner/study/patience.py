"""When to stop launching, and whose turn it is: the guide's, or that of a sampler without a simulator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.engines.base import Outcome
from tuner.study.attrs import attrs_of
from tuner.study.history import History

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

GUIDE = "guide"
WORTH = 0.005
"""Expected gain, as a share of the best so far, below which another launch is not worth its time."""
LEAST = 8
"""Launches before the search may stop for want of anything to gain, where figures are not exact."""
LOSSES = 3
"""Proposals in a row that brought nothing, after which guide and sampler take turns."""
_WRONG = 2.0
PREDICTED = "predicted"
STOPPED = "stopped"


def patience_rule(trials: int, *, exact: bool) -> str:
    """The rule in one line, for the plan."""
    turns = f"after {LOSSES} proposals in a row without a gain the sampler takes every other turn"
    if not exact and trials <= LEAST:
        return turns
    since = "" if exact else f"from launch {LEAST} on "
    return (
        f"{since}stops before {trials} launches once the calibrated simulator expects less than {WORTH:.1%} "
        f"of gain from the next; {turns}"
    )


def enough(gain: float, launched: int, *, exact: bool) -> bool:
    """Whether what the best proposal may gain is worth less than its launch."""
    return gain < WORTH and (exact or launched >= LEAST)


def stopped_line(gain: float, launched: int) -> str:
    """What is said of a search that stopped early."""
    return (
        f"stopped after {launched} launches: the next was expected to gain {max(gain, 0.0):.1%}, less than "
        f"the {WORTH:.1%} that a launch is worth"
    )


def guides_turn(history: History) -> bool:
    """Whether the guide proposes next. It does as long as its proposals win, or came out as it said."""
    trials = [t for t in history.complete if "repeat_of" not in t.user_attrs]
    trials = [t for t in trials if t.user_attrs.get("outcome") != Outcome.REFUSED.value]
    if not trials or trials[-1].user_attrs.get("origin") != GUIDE:
        return True
    losses = 0.0
    for trial in reversed(trials):
        if trial.user_attrs.get("origin") != GUIDE:
            continue
        if _won(trial, trials):
            break
        losses += 1 if not _as_said(trial) else 0.5
    return losses < LOSSES


def _won(trial: FrozenTrial, trials: list[FrozenTrial]) -> bool:
    """Whether a trial was better than all before it."""
    before = [
        float(t.value or 0.0)
        for t in trials
        if t.number < trial.number and t.user_attrs.get("outcome") == Outcome.OK.value
    ]
    ok = trial.user_attrs.get("outcome") == Outcome.OK.value
    return ok and float(trial.value or 0.0) > max(before, default=0.0)


def _as_said(trial: FrozenTrial) -> bool:
    """Whether a trial carried about what was predicted."""
    said = attrs_of(trial).get(PREDICTED)
    value = float(trial.value or 0.0)
    if said is None or trial.user_attrs.get("outcome") == Outcome.CRASH.value or value <= 0.0:
        return False
    return math.log(said["rps"] / value) < _WRONG * said["spread"] if said["rps"] > 0 else True
