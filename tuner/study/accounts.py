"""What the study has cost beyond its finished trials: interrupted baselines, and the finals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.study.history import History
from tuner.study.trial import Spending

if TYPE_CHECKING:
    from optuna.study import Study

_KEY = "beyond_trials"


def beyond_trials(study: Study) -> Spending:
    """Launches and engine seconds that belong to no finished trial."""
    kept = study.user_attrs.get(_KEY, {"launches": 0, "engine_s": 0.0})
    return Spending(int(kept["launches"]), float(kept["engine_s"]))


def add_beyond_trials(study: Study, launches: int, engine_s: float) -> None:
    """Add to them; kept in the study, so that nothing is forgotten by a process that ends."""
    so_far = beyond_trials(study)
    study.set_user_attr(
        _KEY, {"launches": so_far.launches + launches, "engine_s": so_far.engine_s + engine_s}
    )


def spent_s(study: Study) -> float:
    """Seconds of engine time of the whole study so far."""
    return History(study).engine_s() + beyond_trials(study).engine_s
