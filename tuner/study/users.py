"""Concurrent users: how many a configuration serves, and what each number of them feels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tuner.measure import Capacity, Judgement, finite, nearest_rank
from tuner.measure.loadtest import LoadTest
from tuner.profiles.profile import UsersRow
from tuner.study.trial import Session

MOST_USERS = 5000
_SERIES = (1, 2, 5)
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


def most_users(session: Session, test: LoadTest, capacity: Capacity) -> tuple[int, dict[int, Judgement]]:
    """The highest closed-loop number that passes, searched from where Little's law puts it."""
    if capacity.rps <= 0.0:
        return 0, {}
    found = test.users(session.send, likely_users(capacity))
    return found.users, found.tried


def table_numbers(first: int = _FIRST_ROW) -> Iterable[int]:
    """10, 20, 50, 100, 200, … up to the most; from 1, 2, 5 where `first` is less than 10."""
    scale = 1
    while scale <= MOST_USERS:
        yield from (n * scale for n in _SERIES if first <= n * scale <= MOST_USERS)
        scale *= 10


def fill_rows(
    session: Session,
    test: LoadTest,
    figures: UserFigures,
    tried: dict[int, Judgement],
    numbers: Iterable[int],
    *,
    at_least: int = 0,
    beyond: int = 0,
) -> None:
    """Measure rows in ascending order up to the first that breaks the SLO and `beyond` rows more, and up to
    `at_least` users.
    """
    for number in numbers:
        if figures.broken and number > at_least:
            if beyond <= 0:
                return
            beyond -= 1
        judgement = tried.get(number)
        if judgement is None or judgement.replay.stopped:
            judgement = test.with_users(session.send, number, curtail=False)
        figures.rows[number] = _row(judgement)
        figures.broken = figures.broken or not judgement.passes


def nearby(users: int, rows: int) -> list[int]:
    """A few numbers of the table around `users`, for an engine where each costs minutes."""
    numbers = list(table_numbers(first_row(users)))
    below = [n for n in numbers if n <= users]
    above = [n for n in numbers if n > users]
    return [*below[-max(rows - 1, 1) :], *above[:1]][:rows] if rows > 0 else []


def first_row(users: int) -> int:
    """The smallest number of users that the table shows."""
    return _FIRST_ROW if users >= _FIRST_ROW else 1


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
