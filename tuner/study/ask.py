"""Which configuration next: one that the rules allow and that was never launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.engines.base import Outcome
from tuner.space.config import LaunchConfig
from tuner.study.baseline import Baseline
from tuner.study.budget import Costs
from tuner.study.guide import Guide
from tuner.study.history import SAMPLER, History, record_of
from tuner.study.job import Job
from tuner.study.learn import Lessons
from tuner.study.patience import GUIDE, PREDICTED, STOPPED, enough, guides_turn, stopped_line
from tuner.study.points import distance, draw, enumerate_all
from tuner.study.records import Observer
from tuner.study.sampler import make_sampler
from tuner.study.storage import plain
from tuner.study.tell import tell, told_again, told_crash

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

PATIENCE = 50
"""Asks in a row that lead to no launch before the next point is chosen without the sampler."""
REPEATS = 5
"""The same for asks in a row that were tried already: a space that is nearly used up."""
_DRAWS = 2000


class Asker:
    """Asks the study for the next configuration to launch."""

    def __init__(
        self,
        job: Job,
        study: Study,
        baseline: Baseline,
        sampler: str,
        seeds: list[dict[str, Any]],
        guide: Guide | None = None,
    ) -> None:
        self._job = job
        self._study = study
        self._baseline = baseline
        self._sampler = sampler
        self._seeds = seeds
        self._distributions = baseline.space.distributions()
        self._guide = guide
        self.lessons = Lessons(job.predictor)

    def next(
        self, observer: Observer, costs: Costs, busy: frozenset[str] = frozenset()
    ) -> tuple[Trial, LaunchConfig] | None:
        """The next trial and its configuration; None when nothing is left to try, or worth its launch.

        `busy` are the keys of configurations that run now: they are not asked a second time.

        Asks that a rule refuses are told as crashes, asks for what was seen are told from its record: neither
        costs a launch.
        """
        if not self._distributions:
            return None
        from optuna.trial import TrialState

        self.lessons.catch_up(self._study)
        if not self._enqueue_next(observer, History(self._study), costs, busy):
            return None
        asks = repeats = 0
        while asks < PATIENCE and repeats < REPEATS:
            history = History(self._study)
            trial = self._ask(history, len(busy) + repeats if busy else 0)
            config = self._baseline.space.config(trial.params)
            before = history.seen(config)
            if config.key() in busy:
                asks, repeats = asks + 1, repeats + 1
                self._study.tell(trial, state=TrialState.FAIL)
                continue
            if before is None and not self._refused(trial, config, history, observer):
                self._predict(trial, config, history)
                return trial, config
            asks += 1
            if before is not None:
                repeats += 1
                tell(self._study, trial, told_again(before))
        history = History(self._study)
        point = self._untried(history, busy)
        if point is None:
            return None
        self._study.enqueue_trial(point, user_attrs={"origin": "untried"})
        trial = self._ask(history)
        return trial, self._baseline.space.config(trial.params)

    def hand_back(self, trial: Trial) -> None:
        """Put a trial's point back into the queue, to be asked next."""
        attrs = {"again_of": trial.number, "origin": trial.user_attrs.get("origin", SAMPLER)}
        self._study.enqueue_trial(dict(trial.params), user_attrs=attrs)

    def _enqueue_next(self, observer: Observer, history: History, costs: Costs, busy: frozenset[str]) -> bool:
        """Queue what the guide proposes where it is its turn; False where no launch is worth its cost."""
        if self._guide is None or history.waiting or self._next_seed(history) is not None:
            return True
        if not guides_turn(history):
            return True
        proposal = self._guide.propose(history, costs, busy)
        if proposal is None:
            return True
        launched = history.launched()
        if enough(proposal.gain, launched, exact=self._job.engine.deterministic):
            self._study.set_user_attr(STOPPED, {"gain": proposal.gain, "launched": launched})
            observer.note(stopped_line(proposal.gain, launched))
            return False
        self._study.enqueue_trial(dict(proposal.point), user_attrs={"origin": GUIDE, "gain": proposal.gain})
        return True

    def _predict(self, trial: Trial, config: LaunchConfig, history: History) -> None:
        """Keep what the predictor says of a configuration before it is launched."""
        predictor = self._job.predictor
        if predictor is not None:
            said = {"rps": predictor.capacity_rps(config), "spread": predictor.spread(config)}
            trial.set_user_attr(PREDICTED, {**said, "launches_before": history.launched()})

    def _next_seed(self, history: History) -> int | None:
        used = history.seeds_used()
        return next((i for i in range(len(self._seeds)) if i not in used), None)

    def _ask(self, history: History, beside: int = 0) -> Trial:
        # trials that run change nothing that is told: without them in the seed it would ask the same again
        told = history.told + 1000 * beside
        self._study.sampler = make_sampler(self._sampler, self._job.spec.seed, told)
        if not history.waiting:
            index = self._next_seed(history)
            if index is not None:
                attrs = {"origin": "seed", "seed": index}
                self._study.enqueue_trial(self._seeds[index], user_attrs=attrs)
        trial = self._study.ask(fixed_distributions=dict(self._distributions))
        if "origin" not in trial.user_attrs:
            trial.set_user_attr("origin", SAMPLER)
        return trial

    def _refused(self, trial: Trial, config: LaunchConfig, history: History, observer: Observer) -> bool:
        """Whether a rule refuses the configuration; the trial is then told."""
        refusal = self._job.rules.check(config)
        if refusal is None:
            return False
        attrs = {
            "rule": refusal.rule,
            "cause": refusal.reason,
            "config": plain(dict(config)),
            "key": config.key(),
            "changed": plain(self._baseline.changed(trial.params)),
        }
        frozen = tell(self._study, trial, told_crash(Outcome.REFUSED, history, attrs))
        observer.trial_finished(record_of(frozen), history.incumbent())
        return True

    def _untried(self, history: History, busy: frozenset[str]) -> dict[str, Any] | None:
        """The untried point nearest to the best that the rules allow."""
        rng = np.random.default_rng((self._job.spec.seed, history.told))
        points = enumerate_all(self._distributions, _DRAWS)
        if points is None:
            points = (draw(self._distributions, rng) for _ in range(_DRAWS))
        space, rules = self._baseline.space, self._job.rules
        allowed = [
            point
            for point in points
            if history.seen(config := space.config(point)) is None
            and config.key() not in busy
            and rules.check(config) is None
        ]
        if not allowed:
            return None
        best = history.incumbent()
        centre = self._baseline.params
        if best is not None:
            centre = next(t.params for t in history.complete if t.number == best.number)
        allowed.sort(key=lambda point: distance(self._distributions, point, centre))
        return allowed[0]
