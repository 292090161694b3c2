"""The stage of the finals: launches one after the other, counted, numbered, shown, and kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.measure import Capacity, Judgement
from tuner.profiles.evidence import Drift, FinalRow, FlagGain
from tuner.spec import LoadMode
from tuner.study.accounts import add_beyond_trials, spent_s
from tuner.study.baseline import launch_patiently
from tuner.study.budget import MOST_FINAL_LAUNCHES, Costs, allows_final
from tuner.study.finalist import Finalist
from tuner.study.job import Job
from tuner.study.load import Offer, search
from tuner.study.storage import StudyPlace
from tuner.study.trial import Bench, Run, Session
from tuner.study.users import most_users

if TYPE_CHECKING:
    from optuna.study import Study

More = Callable[[Session, Capacity], None]
"""What to measure on a finalist's server after its capacity."""


@dataclass(frozen=True, slots=True)
class Finals:
    """What the finals found. `winner` is the default itself where nothing beats it, None where nothing meets
    the SLO; `default` has no figures where there was nothing to hold finals for.

    `tied` are finalists that cannot be told apart from the winner, `gain_interval` is that of the winner's
    gain, or of the best contender's where the defaults are kept.
    """

    default: Finalist
    winner: Finalist | None
    offer: Offer
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None
    rows: tuple[FinalRow, ...] = ()
    drift: Drift | None = None
    tied: tuple[Finalist, ...] = ()
    flag_gains: tuple[FlagGain, ...] = ()


class Stage:
    """Launches of the finals, one after the other: counted, numbered and shown."""

    def __init__(
        self, job: Job, place: StudyPlace, study: Study, bench: Bench, offer: Offer, total: int
    ) -> None:
        self.job = job
        self.place = place
        self.study = study
        self.offer = offer
        self.launches = 0
        self.total = total
        self.bench = bench

    def run(self, finalist: Finalist, more: More | None = None) -> Run:
        """Launch a finalist and find its capacity; the launch joins its runs."""

        def measure(session: Session) -> Capacity:
            capacity = search(self.offer, lambda load: session.judge(self.offer, load), finalist.start)
            self.bench.observer.final_finished(finalist.label, capacity)
            if more is not None:
                more(session, capacity)
            return capacity

        self.next(finalist)
        run = self.launch(finalist, measure)
        finalist.runs.append(run)
        return run

    def next(self, finalist: Finalist) -> None:
        """The next launch of the plan is this finalist's."""
        self.launches += 1
        self.total = max(self.total, self.launches)
        self.bench.observer.final_started(finalist.label, finalist.config, self.launches, self.total)

    def launch(self, finalist: Finalist, measure: Callable[[Session], Capacity]) -> Run:
        """Launch a finalist and measure on it, again while the machine is at fault."""
        return launch_patiently(self.job, lambda: self._launch(finalist, measure))

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
        return allows_final(self.job.spec.budget, costs, spent_s(self.study))

    def _launch(self, finalist: Finalist, measure: Callable[[Session], Capacity]) -> Run:
        bench = self.bench
        launches, seconds = bench.spent.launches, bench.spent.engine_s
        try:
            return bench.run(finalist.config, self.place.finals_folder(self.launches), measure)
        finally:
            add_beyond_trials(self.study, bench.spent.launches - launches, bench.spent.engine_s - seconds)
