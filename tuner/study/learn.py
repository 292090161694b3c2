"""What a failed launch teaches: bounds on flags become rules, and outlive the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.engines.base import LaunchFailure
from tuner.study.job import RuleBook

if TYPE_CHECKING:
    from optuna.study import Study


def learn(study: Study, rules: RuleBook, failure: LaunchFailure) -> None:
    """Take over the bounds of a failure, and record them in the study."""
    if not failure.bounds:
        return
    learned = list(study.user_attrs.get("learned", []))
    for bound in failure.bounds:
        rules.learn(bound.flag, min=bound.min, max=bound.max, reason=failure.cause)
        learned.append({"flag": bound.flag, "min": bound.min, "max": bound.max, "reason": failure.cause})
    study.set_user_attr("learned", learned)


def relearn(study: Study, rules: RuleBook) -> None:
    """Take over what the study learned before this process."""
    for bound in study.user_attrs.get("learned", []):
        rules.learn(bound["flag"], min=bound["min"], max=bound["max"], reason=bound["reason"])
