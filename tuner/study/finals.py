"""The finals: the best two and the default, on fresh launches, on traffic that the search did not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.measure import Capacity, Judgement
from tuner.spec import LoadMode
from tuner.study.accounts import add_beyond_trials, spent_s
from tuner.study.baseline import Baseline, launch_patiently
from tuner.study.budget import MOST_FINAL_LAUNCHES, Costs, allows_final
from tuner.study.finalist import Finalist, best_of, choose_contenders, surely, the_default
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.load import Offer, search
from tuner.study.storage import StudyPlace
from tuner.study.trial import Bench, Run, Session
from tuner.study.users import UserFigures, keep_rows, most_users

if TYPE_CHECKING:
    from optuna.study import Study

More = Callable[[Session, Capacity], None]
"""What to measure on a finalist's server after its capacity."""


@dataclass(frozen=True, slots=True)
class Finals:
    """What the finals found. `winner` is the default itself where nothing beats it, None where nothing meets
    the SLO; `default` has no runs where there was nothing to hold finals for."""

    default: Finalist
    winner: Finalist | None
    offer: Offer


class Stage:
    """Launches of the finals, one after the other: counted, numbered and shown."""

    def __init__(
        self, job: Job, place: StudyPlace, study: Study, bench: Bench, offer: Offer, total: int
    ) -> None:
        self.job = job
        self.offer = offer
        self.launches = 0
        self.total = total
        self._place = place
        self._study = study
        self._bench = bench

    def run(self, finalist: Finalist, more: More | None = None) -> Run:
        """Launch a finalist and find its capacity; the launch joins its runs."""

        def measure(session: Session) -> Capacity:
            capacity = search(self.offer, self._judge(session), finalist.start)
            self._bench.observer.final_finished(finalist.label, capacity)
            if more is not None:
                more(session, capacity)
            return capacity

        run = launch_patiently(self.job, lambda: self._launch(finalist, measure))
        finalist.runs.append(run)
        return run

    def most_users(self, session: Session, capacity: Capacity) -> tuple[int, dict[int, Judgement]]:
        """The most users that pass, and what was tried to find it."""
        if self.job.spec.load is LoadMode.USERS:
            return round(capacity.rps), {}
        roughly = not self.job.engine.deterministic
        return most_users(session, self.offer.test, capacity, roughly=roughly)

    def affordable(self, costs: Costs) -> bool:
        """Whether a further launch fits the budget and the number of launches that the plan named."""
        if self.launches >= MOST_FINAL_LAUNCHES:
            return False
        return allows_final(self.job.spec.budget, costs, spent_s(self._study))

    def _launch(self, finalist: Finalist, measure: Callable[[Session], Capacity]) -> Run:
        self.launches += 1
        self.total = max(self.total, self.launches)
        bench = self._bench
        bench.observer.final_started(finalist.label, finalist.config, self.launches, self.total)
        launches, seconds = bench.spent.launches, bench.spent.engine_s
        try:
            return bench.run(finalist.config, self._place.finals_folder(self.launches), measure)
        finally:
            add_beyond_trials(self._study, bench.spent.launches - launches, bench.spent.engine_s - seconds)

    def _judge(self, session: Session) -> Callable[[float], Judgement]:
        if self.job.engine.deterministic:
            return lambda load: session.judge(self.offer, load)
        return lambda load: surely(session.judge(self.offer, load), self.job.spec.slo)


def hold_finals(
    job: Job,
    place: StudyPlace,
    study: Study,
    bench: Bench,
    offers: tuple[Offer, Offer],
    baseline: Baseline,
    costs: Costs,
) -> Finals:
    """Measure the best of the search and the default again; say which to deploy.

    `offers` are the search's loads and those of the held-out window.
    """
    history = History(study)
    searched, held_out = offers
    default = the_default(job, history, baseline, searched, held_out)
    if history.incumbent() is None:
        return Finals(default, None, held_out)
    contenders = choose_contenders(job, history, baseline, searched, held_out)
    if (plainly := getattr(job.engine, "plainly", None)) is not None:
        plainly()  # what is confirmed is what will be deployed, not a fork of a launcher
    stage = Stage(job, place, study, bench, held_out, total=len(contenders) + 1)
    if job.engine.deterministic:
        from tuner.study.exact import exact_finals

        return Finals(default, exact_finals(stage, baseline, contenders, default), held_out)
    return _interleaved(stage, costs, contenders, default)


def _interleaved(stage: Stage, costs: Costs, contenders: list[Finalist], default: Finalist) -> Finals:
    """A B D, then D B A with what is left of the budget: drift hits all alike."""
    shown: set[int] = set()

    def count(finalist: Finalist) -> More:
        def more(session: Session, capacity: Capacity) -> None:
            if finalist is not default and any(capacity.rps <= c.load for c in contenders if c.runs):
                return
            users, tried = stage.most_users(session, capacity)
            finalist.users = UserFigures(users)
            if finalist is default:
                least = min((n for n, judgement in tried.items() if not judgement.passes), default=0)
                for number in sorted(n for n in shown - tried.keys() if n < least):
                    tried[number] = stage.offer.test.with_users(session.send, number)
            else:
                shown.clear()
                shown.update(tried)
            keep_rows(finalist.users, tried)

        return more

    for finalist in [*contenders, default]:
        stage.run(finalist, count(finalist))
    ahead = [c for c in contenders if c.load > default.load]
    if ahead:
        stage.total = min(MOST_FINAL_LAUNCHES, stage.launches + 1 + len(ahead))
        for finalist in [default, *reversed(ahead)]:
            if not stage.affordable(costs):
                break
            finalist.start = finalist.load or finalist.start
            stage.run(finalist)
    return Finals(default, best_of(contenders, default), stage.offer)
