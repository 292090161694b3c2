"""Concurrent users: how many a configuration serves, and what each number of them feels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tuner.measure import USERS_SERIES, Capacity, Judgement, LoadTest, finite, nearest_rank
from tuner.profiles.profile import UsersRow
from tuner.study.trial import Session

ROUGHLY = 1.25
"""How closely users are counted where each replay costs minutes."""
FEWER_REQUESTS = 400
"""Requests of a closed-loop replay there: enough for a bound on the P99."""
_FIRST_ROW = 10

Row = tuple[float | None, float | None]
"""Mean and P99 of end-to-end latency in seconds; None where requests failed."""


@dataclass(slots=True)
class UserFigures:
    """The most users that pass (0: none), and rows of the table by number of users."""

    users: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    broken: bool = False
    """Whether the last row breaks the SLO."""


def likely_users(capacity: Capacity) -> int:
    """Requests in the system at the capacity: Little's law, rate x mean latency."""
    replay = capacity.at.replay
    answered = replay.e2e_s()[replay.ok]
    mean_s = float(answered.mean()) if len(answered) else 0.0
    return max(1, round(capacity.at.offered_rps * mean_s))


def most_users(
    session: Session, test: LoadTest, capacity: Capacity, *, roughly: bool
) -> tuple[int, dict[int, Judgement]]:
    """The highest closed-loop number that passes, searched from where Little's law puts it."""
    if capacity.rps <= 0.0:
        return 0, {}
    start = likely_users(capacity)
    if roughly:
        fewer = min(test.requests, FEWER_REQUESTS)
        found = test.users(session.send, start, tolerance=ROUGHLY, requests=fewer)
    else:
        found = test.users(session.send, start)
    return found.users, found.tried


def table_numbers(users: int) -> tuple[int, ...]:
    """10, 20, 50, 100, …; from 1 where fewer than 10 users pass."""
    return tuple(n for n in USERS_SERIES if n >= _FIRST_ROW or users < _FIRST_ROW)


def keep_rows(figures: UserFigures, tried: dict[int, Judgement]) -> None:
    """Rows of what was tried; a replay that was stopped early has no figures, only its verdict."""
    nothing: Row = (None, None)
    for number, judgement in tried.items():
        figures.rows[number] = nothing if judgement.replay.stopped else _row(judgement)


def fill_rows(
    session: Session,
    test: LoadTest,
    figures: UserFigures,
    tried: dict[int, Judgement],
    numbers: Iterable[int],
    *,
    at_least: int = 0,
) -> None:
    """Measure rows in ascending order up to the first that breaks the SLO, and up to `at_least` users."""
    for number in numbers:
        if figures.broken and number > at_least:
            return
        judgement = tried.get(number)
        if judgement is None or judgement.replay.stopped:
            judgement = test.with_users(session.send, number, curtail=False)
        figures.rows[number] = _row(judgement)
        figures.broken = figures.broken or not judgement.passes


def joined(default: UserFigures, tuned: UserFigures) -> tuple[UsersRow, ...]:
    """The table: default beside tuned."""
    nothing: Row = (None, None)
    return tuple(
        UsersRow(n, *default.rows.get(n, nothing), *tuned.rows.get(n, nothing))
        for n in sorted(default.rows.keys() | tuned.rows.keys())
    )


def _row(judgement: Judgement) -> Row:
    replay = judgement.replay
    latency = replay.e2e_s()
    answered = latency[np.isfinite(latency)]
    mean = finite(float(answered.mean())) if len(answered) else None
    return mean, finite(nearest_rank(latency, 0.99))
