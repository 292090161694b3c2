"""A trial's attributes in the database: what people look for on its own, the rest together.

Every attribute is a transaction of its own, so few are fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

DETAIL = "detail"
SHOWN = frozenset(
    {
        "origin",
        "outcome",
        "cause",
        "p99_s",
        "slo_margin",
        "capacity_rps",
        "censored",
        "lost_at_rps",
        "seed",
        "again_of",
        "gain",
        "predicted",
        "repeat_of",
    }
)
"""User attributes of their own; everything else is in the mapping `detail`."""


def packed(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as they are stored."""
    shown = {name: value for name, value in attrs.items() if name in SHOWN}
    return {**shown, DETAIL: {name: value for name, value in attrs.items() if name not in SHOWN}}


def attrs_of(trial: FrozenTrial) -> dict[str, Any]:
    """A trial's attributes, whichever way they are stored."""
    shown = dict(trial.user_attrs)
    return {**shown.pop(DETAIL, {}), **shown}
