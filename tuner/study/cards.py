"""How many GPUs a configuration takes, and what each number of them gave."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.engines.base import Outcome
from tuner.profiles.evidence import CardsRow
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue
from tuner.study.history import History
from tuner.study.records import TrialRecord

_COUNTS = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
_LAUNCHED = (Outcome.OK, Outcome.SLO, Outcome.CRASH)


def cards_of(config: Mapping[str, FlagValue]) -> int:
    """How many GPUs a configuration takes."""
    wanted = 1
    for flag in _COUNTS:
        value = config.get(flag)
        wanted *= value if isinstance(value, int) and not isinstance(value, bool) else 1
    return wanted


def incumbent_of(history: History, cards: int) -> TrialRecord | None:
    """The best trial so far among those of so many GPUs: one large server does not end the small ones."""
    passed = [r for r in history.records if r.outcome is Outcome.OK and cards_of(r.config) == cards]
    return max(passed, key=lambda r: (r.value_rps, -r.number), default=None)


def by_cards(history: History) -> tuple[CardsRow, ...]:
    """The best of the search for each number of GPUs; empty where there is only one number."""
    tried: dict[int, int] = {}
    for record in history.records:
        if record.outcome in _LAUNCHED:
            tried[cards_of(record.config)] = tried.get(cards_of(record.config), 0) + 1
    if len(tried) < 2:
        return ()
    rows = []
    for cards, trials in sorted(tried.items()):
        best = incumbent_of(history, cards)
        rps = best.value_rps if best else 0.0
        rows.append(CardsRow(cards, trials, rps, rps / cards, best.config if best else LaunchConfig()))
    return tuple(rows)
