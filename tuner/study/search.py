"""The search: keep the crew at work while the budget lasts, and tell what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuner.engines.base import MACHINE_FAULTS, LaunchFailure, Outcome
from tuner.measure import Verdict
from tuner.study.accounts import add_beyond_trials, spent_s
from tuner.study.ask import Asker
from tuner.study.attrs import packed
from tuner.study.baseline import Baseline, check_engine, machine_fault, wait_out_fault
from tuner.study.budget import Costs, allows_trial
from tuner.study.cards import cards_of, incumbent_of
from tuner.study.crew import Crew, Finding, Task, lost
from tuner.study.history import History, record_of
from tuner.study.job import Job
from tuner.study.learn import learn, lesson_of
from tuner.study.load import Offer
from tuner.study.neighbours import compare, make_check
from tuner.study.owning import check_owner
from tuner.study.storage import StudyPlace, plain
from tuner.study.tell import Told, estimated, tell, told_run
from tuner.study.trial import Bench, Run

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial

UNTRUE = 2
"""So many replays of one launch that proved nothing leave a result that proves nothing."""


@dataclass(slots=True)
class Search:
    """One search. `price` says what a launch and a replay take, as known by now."""

    job: Job
    place: StudyPlace
    study: Study
    bench: Bench
    offer: Offer
    baseline: Baseline
    asker: Asker
    crew: Crew
    price: Callable[[Job, Offer, History], Costs]
    faults: int = 0
    _asked: tuple[Trial, Task] | None = field(default=None)
    _hand: Finding | None = field(default=None)

    def run(self) -> None:
        """Ask, run and tell until the budget is used up or nothing is left to try."""
        if (check := make_check(self.job, self.place, self.study, self.baseline)) is not None:
            self.crew.submit(check)
        while True:
            self._fill()
            if not self.crew.running:
                return
            self._hand = self.crew.wait()
            if self._hand is not None:
                self._take(self._hand)
            self._hand = None

    def hand_back(self) -> None:
        """Queue again what was asked and not told; the crew has stopped."""
        asked = [self._asked[1]] if self._asked else []
        hand = [self._hand.task] if self._hand and self._hand.task.trial else []
        for task in [*hand, *self.crew.running, *asked]:
            self._fail(task, "interrupted")

    def _fill(self) -> None:
        while len(self.crew.running) < self.crew.size:
            if self._asked is None and not self._ask():
                return
            assert self._asked is not None
            trial, task = self._asked
            if not self.crew.fits(task.cards):
                return  # the next that ends makes room; a smaller one does not go first, or it might never
            self.bench.observer.trial_started(trial.number, trial.user_attrs["origin"], task.config)
            self.crew.submit(task)
            self._asked = None

    def _ask(self) -> bool:
        if self.place.shared:
            check_owner(self.study)
        history = History(self.study)
        price = self.price(self.job, self.offer, history)
        under_way = sum(task.trial is not None for task in self.crew.running)
        launched = history.launched() + under_way
        if not allows_trial(
            self.job.spec.budget, price, launched, spent_s(self.study) + price.trials_s(under_way)
        ):
            return False
        busy = frozenset(task.config.key() for task in self.crew.running)
        asked = self.asker.next(self.bench.observer, price, busy)
        if asked is None:
            return False
        trial, config = asked
        history = History(self.study)
        incumbent = incumbent_of(history, cards_of(config))
        larger = history.incumbent()
        start = larger.value_rps * cards_of(config) / cards_of(larger.config) if larger else self.offer.start
        task = Task(
            trial,
            config,
            self.place.trial_folder(trial.number),
            incumbent.value_rps if incumbent else start,
            beat_start=incumbent is not None,
        )
        self._asked = trial, task
        return True

    def _take(self, finding: Finding) -> None:
        """Tell what was found; a fault of the machine is not told, but asked again."""
        task, run = finding.task, finding.run
        if (invalid := finding.untrue or untrue(run)) and self.crew.fewer():
            self.bench.observer.note(
                f"the replay client could not keep up beside its neighbours: at most {self.crew.size} trials "
                "at a time from here on"
            )
            if invalid >= UNTRUE and task.trial is not None:
                self._fail(task, Outcome.MACHINE.value)
                return
        if task.trial is None:
            add_beyond_trials(self.study, task.spent.launches, task.spent.engine_s)
            self.bench.observer.note(compare(self.study, self.job, self.place, run))
            return
        if run.failure is not None:
            check_engine(run.failure)
            if run.failure.kind in MACHINE_FAULTS:
                self._machine(task, run.failure)
                return
        self.faults = 0
        self._tell(finding)

    def _machine(self, task: Task, failure: LaunchFailure) -> None:
        self.faults += 1
        self._fail(task, Outcome.MACHINE.value)
        if self.faults >= self.job.options.fault_tries * self.crew.size:
            raise machine_fault(failure, self.faults)
        if lost(failure):
            self.bench.observer.note(f"trial {_number(task) + 1} is asked again: {failure.cause}")
        else:
            wait_out_fault(self.job, self.faults)

    def _tell(self, finding: Finding) -> None:
        task, run = finding.task, finding.run
        assert task.trial is not None
        learn(self.study, self.job.rules, run)
        elsewhere = finding.told
        lesson = lesson_of(self.job.predictor, run) if elsewhere is None else _lesson_in(elsewhere)
        estimate = self.asker.lessons.take(task.trial.number, task.config, lesson)
        told = (
            told_run(run, self.job.spec.slo, History(self.study), estimate)
            if elsewhere is None
            else estimated(elsewhere, estimate)
        )
        frozen = tell(
            self.study,
            task.trial,
            told,
            config=plain(dict(task.config)),
            key=task.config.key(),
            changed=plain(self.baseline.changed(task.trial.params)),
            **lesson,
            launched=1,
            launches=task.spent.launches,
            engine_s=task.spent.engine_s,
        )
        self.bench.observer.trial_finished(record_of(frozen), History(self.study).incumbent())

    def _fail(self, task: Task, outcome: str) -> None:
        """Queue a trial's point again and end the trial as failed, which the sampler does not see."""
        from optuna.trial import TrialState

        if task.trial is None:
            add_beyond_trials(self.study, task.spent.launches, task.spent.engine_s)
            return
        number = task.trial.number
        state = next(t.state for t in self.study.get_trials(deepcopy=False) if t.number == number)
        if state is not TrialState.RUNNING:
            return
        self.asker.hand_back(task.trial)
        spent = {"launches": task.spent.launches, "engine_s": task.spent.engine_s}
        for name, value in packed({"outcome": outcome, **spent}).items():
            task.trial.set_user_attr(name, value)
        self.study.tell(task.trial, state=TrialState.FAIL)


def _number(task: Task) -> int:
    return task.trial.number if task.trial is not None else 0


def untrue(run: Run) -> int:
    """How many replays of a launch proved nothing, because the client was the limit."""
    return sum(judgement.verdict is Verdict.INVALID for _, judgement in run.judgements)


def _lesson_in(told: Told) -> dict[str, Any]:
    """The lesson that came with a finding from another host."""
    return {"lesson": told.attrs["lesson"]} if "lesson" in told.attrs else {}
