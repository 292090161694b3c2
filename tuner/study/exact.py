"""Finals on an engine that gives the same figures every time: each configuration once, then fewer flags."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from tuner.measure import USERS_SERIES, Capacity
from tuner.profiles.evidence import FlagGain
from tuner.space.config import LaunchConfig
from tuner.study.baseline import Baseline
from tuner.study.budget import MOST_FINAL_LAUNCHES
from tuner.study.finalist import BETTER, Finalist, best_of, exact_figures
from tuner.study.stage import Finals, More, Stage
from tuner.study.trial import Session
from tuner.study.users import UserFigures, fill_rows, table_numbers

MOST = USERS_SERIES[-1]
_PUT_BACK_LAST = ("gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs")
"""The flags that most often carry the gain; all others are put back together first."""


def exact_finals(stage: Stage, baseline: Baseline, contenders: list[Finalist], default: Finalist) -> Finals:
    """The default, the contenders, and the best of them with its needless flags put back.

    Users are counted on the same launches, so that all stay within the six of the plan.
    """
    best = 0.0
    for contender in contenders:
        stage.run(contender, _count(stage, contender, above=best * BETTER))
        best = max(best, contender.load)
    last = max((n for contender in contenders for n in contender.users.rows), default=0)
    stage.run(default, _count(stage, default, at_least=last))
    shown = max(default.users.rows, default=last)
    winner = best_of(contenders, default)
    gains: dict[str, FlagGain] = {}
    if winner is not None and winner is not default:
        winner = _put_back(stage, baseline, winner, default, shown, gains)
    for finalist in (default, winner, *contenders):
        if finalist is not None and finalist.runs and (capacity := finalist.runs[0].capacity) is not None:
            finalist.figures = exact_figures(capacity, stage.offer)
    gain = winner.load / default.load if winner is not None and default.load > 0.0 else None
    tied = [
        contender
        for contender in contenders
        if winner is not None
        and winner is not default
        and contender.config != winner.config
        and contender.load >= winner.load * (1.0 - 1e-9)
    ]
    return Finals(
        default,
        winner,
        stage.offer,
        gain=gain,
        gain_interval=(gain, gain) if gain is not None else None,
        tied=tuple(tied),
        flag_gains=tuple(found for flag, found in gains.items() if winner and flag in winner.changed),
    )


def _put_back(
    stage: Stage,
    baseline: Baseline,
    winner: Finalist,
    default: Finalist,
    shown: int,
    gains: dict[str, FlagGain],
) -> Finalist:
    """Put flags back to the default, group by group, while as much is carried: what is exported is needed.

    What goes with a single flag is noted in `gains`.
    """
    groups = deque(_groups(winner.changed))
    while groups and stage.launches < MOST_FINAL_LAUNCHES:
        group = groups.popleft()
        less = LaunchConfig.of({name: value for name, value in winner.config.items() if name not in group})
        label = f"{winner.label} without {', '.join(group)}"
        tried = Finalist(label, less, winner.start, baseline.flags_changed(less))
        enough = winner.load * (1.0 - 1e-9)
        if less == default.config:  # measured already, and beaten
            tried.runs = default.runs
        else:
            stage.run(tried, _count(stage, tried, at_least=shown, at_most=shown, above=enough))
        if tried.load >= enough:
            winner = replace(tried, label=winner.label)
        elif len(group) == 1:
            gains[group[0]] = _gain(group[0], winner, tried)
        else:
            half = len(group) // 2
            groups.extendleft([group[half:], group[:half]])
    return winner


def _gain(flag: str, winner: Finalist, less: Finalist) -> FlagGain:
    return FlagGain(flag, winner.changed[flag], 1.0 - less.load / winner.load, "engine")


def _groups(changed: Iterable[str]) -> list[list[str]]:
    flags = sorted(changed)
    together = [flag for flag in flags if flag not in _PUT_BACK_LAST]
    return [group for group in (together, *([f] for f in _PUT_BACK_LAST if f in flags)) if group]


def _count(
    stage: Stage, finalist: Finalist, *, at_least: int = 0, at_most: int = MOST, above: float = 0.0
) -> More:
    """Count users where the capacity is at least `above`: rows up to the first that breaks the SLO, to
    `at_least` users, and none beyond `at_most`."""

    def more(session: Session, capacity: Capacity) -> None:
        if capacity.rps <= 0.0 or capacity.rps < above:
            return
        users, tried = stage.most_users(session, capacity)
        figures = finalist.users = UserFigures(users)
        numbers = [n for n in table_numbers(users) if n <= at_most]
        fill_rows(session, stage.offer.test, figures, tried, numbers, at_least=at_least)

    return more
