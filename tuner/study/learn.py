"""What a launch teaches: bounds on flags become rules, memory corrects the arithmetic; both are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.space.config import LaunchConfig
from tuner.study.attrs import attrs_of
from tuner.study.job import RuleBook
from tuner.study.storage import plain
from tuner.study.trial import Run

if TYPE_CHECKING:
    from optuna.study import Study


def learn(study: Study, rules: RuleBook, run: Run) -> None:
    """Take over what a launch taught: the bounds of its failure, recorded in the study, or its memory."""
    if run.failure is None:
        if run.facts is not None:
            _observe(rules, run.config, run.facts.kv_tokens, run.facts.weights_gib)
        return
    if not run.failure.bounds:
        return
    learned = list(study.user_attrs.get("learned", []))
    for bound in run.failure.bounds:
        rules.learn(bound.flag, bound.min, bound.max, run.failure.cause, config=run.config)
        learned.append(
            {
                "flag": bound.flag,
                "min": bound.min,
                "max": bound.max,
                "reason": run.failure.cause,
                "config": plain(dict(run.config)),
            }
        )
    study.set_user_attr("learned", learned)


def relearn(study: Study, rules: RuleBook) -> None:
    """Take over what the study learned before this process."""
    for trial in study.get_trials(deepcopy=False):
        attrs = attrs_of(trial)
        if "kv_tokens" in attrs and "failure" not in attrs and "config" in attrs and "repeat_of" not in attrs:
            _observe(rules, LaunchConfig.of(attrs["config"]), attrs["kv_tokens"], attrs["weights_gib"])
    for bound in study.user_attrs.get("learned", []):
        config = LaunchConfig.of(bound["config"])
        rules.learn(bound["flag"], bound["min"], bound["max"], bound["reason"], config=config)


def _observe(rules: RuleBook, config: LaunchConfig, kv_tokens: int, weights_gib: float) -> None:
    rules.observe(config, kv_tokens=kv_tokens or None, weights_gib=weights_gib or None)
