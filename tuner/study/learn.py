"""What a launch teaches: bounds on flags become rules, memory corrects the arithmetic; both are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.engines.base import Predictor
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


def lesson_of(predictor: Predictor | None, run: Run) -> dict[str, Any]:
    """What a launch has to teach a predictor, as attributes of its trial."""
    if predictor is None or run.facts is None or run.failure is not None:
        return {}
    return {"lesson": plain(dict(predictor.lesson(run.config, run.facts, run.judgements)))}


class Lessons:
    """Takes a study's lessons to its predictor, each once and in the order of the trials."""

    def __init__(self, predictor: Predictor | None) -> None:
        self._predictor = predictor
        self._learnt: set[int] = set()

    def catch_up(self, study: Study) -> None:
        """Teach what is new in the study, whichever process measured it."""
        if self._predictor is None:
            return
        for trial in study.get_trials(deepcopy=False):
            lesson = attrs_of(trial).get("lesson")
            if lesson is not None and trial.state.is_finished():
                self._teach(trial.number, lesson)

    def take(self, number: int, config: LaunchConfig, attrs: dict[str, Any]) -> float | None:
        """Teach what a trial measured, before it is told; returns what its configuration then seems to
        carry."""
        if self._predictor is None or "lesson" not in attrs:
            return None
        self._teach(number, attrs["lesson"])
        return self._predictor.capacity_rps(config)

    def _teach(self, number: int, lesson: dict[str, Any]) -> None:
        if self._predictor is not None and number not in self._learnt:
            self._learnt.add(number)
            self._predictor.recall(lesson)


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
