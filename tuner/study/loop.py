"""The tune job from plan to result: baseline, search, finals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.engines.base import MACHINE_FAULTS, Outcome
from tuner.space.config import LaunchConfig
from tuner.study.accounts import spent_s
from tuner.study.ask import Asker
from tuner.study.attrs import packed
from tuner.study.baseline import Baseline, check_engine, find_baseline, machine_fault, wait_out_fault
from tuner.study.budget import Costs, allows_trial
from tuner.study.conclude import conclude
from tuner.study.finals import hold_finals
from tuner.study.history import History, record_of
from tuner.study.job import Job
from tuner.study.learn import learn, lesson_of, relearn
from tuner.study.load import Offer, make_offer
from tuner.study.plan import make_plan
from tuner.study.records import Observer, TuneResult
from tuner.study.resume import finished_result, keep_result, reap
from tuner.study.sampler import recorded_sampler
from tuner.study.seeds import make_seeds
from tuner.study.storage import StudyPlace, open_study, plain
from tuner.study.tell import tell, told_run
from tuner.study.trial import Bench
from tuner.study.windows import split
from tuner.traces import Trace

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import Trial


def tune(job: Job, place: StudyPlace, observer: Observer) -> TuneResult:
    """Run a study to its end, or print a finished one's result again.

    A study that was interrupted goes on where it stopped. The engine is not closed.

    Raises:
        BadRequest: the study belongs to another job or process, or the trace cannot be used.
        EngineUnavailable: the engine cannot be run here.
        KeyboardInterrupt: passed on, after the server is gone and its trial is queued again.
    """
    windows = split(job.trace, job.spec.load)
    with open_study(job, place) as study:
        result = finished_result(study, job)
        if result is not None:
            observer.finished(result)
            return result
        sampler = recorded_sampler(study, job.options.sampler)
        observer.planned(make_plan(job, place, sampler=sampler))
        resumed = bool(study.get_trials(deepcopy=False))
        relearn(study, job.rules)
        bench = Bench(job, observer)
        offer = make_offer(windows.search, job.spec)
        baseline = find_baseline(job, place, study, bench, offer)
        reap(study, baseline.space)
        asker = Asker(job, study, baseline, sampler, _seeds(job, study, baseline, windows.search))
        _search(job, place, study, bench, offer, baseline, asker)
        held_out = make_offer(windows.finals, job.spec)
        price = costs(job, held_out, History(study))
        finals = hold_finals(job, place, study, bench, (offer, held_out), baseline, price)
        result = conclude(job, place, study, baseline, finals, windows, resumed=resumed)
        keep_result(study, job, place, result)
    observer.finished(result)
    return result


def costs(job: Job, offer: Offer, history: History) -> Costs:
    """What a launch and a replay take here: as seen, else as estimated."""
    seen = history.startups_s()
    launch_s = sum(seen) / len(seen) if seen else job.engine.startup_estimate_s()
    return Costs(launch_s, offer.test.loads.at(offer.test.loads.natural_rps).duration_s)


def _search(
    job: Job,
    place: StudyPlace,
    study: Study,
    bench: Bench,
    offer: Offer,
    baseline: Baseline,
    asker: Asker,
) -> None:
    faults = 0
    while True:
        history = History(study)
        price = costs(job, offer, history)
        if not allows_trial(job.spec.budget, price, history.launched(), spent_s(study)):
            return
        asked = asker.next(bench.observer)
        if asked is None:
            return
        trial, config = asked
        before = bench.spent.launches, bench.spent.engine_s
        try:
            outcome = _try(job, place, study, bench, offer, baseline, trial, config)
            if outcome is Outcome.MACHINE:
                faults += 1
                _fail(study, asker, bench, trial, before, Outcome.MACHINE.value)
                if faults >= job.options.fault_tries:
                    assert bench.last_failure is not None
                    raise machine_fault(bench.last_failure, faults)
                wait_out_fault(job, faults)
            else:
                faults = 0
        except BaseException:
            _fail(study, asker, bench, trial, before, "interrupted")
            raise


def _try(
    job: Job,
    place: StudyPlace,
    study: Study,
    bench: Bench,
    offer: Offer,
    baseline: Baseline,
    trial: Trial,
    config: LaunchConfig,
) -> Outcome:
    """Launch, measure and tell; a fault of the machine is not told."""
    history = History(study)
    incumbent = history.incumbent()
    launches, seconds = bench.spent.launches, bench.spent.engine_s
    bench.observer.trial_started(trial.number, trial.user_attrs["origin"], config)
    run = bench.find_capacity(
        config,
        place.trial_folder(trial.number),
        offer,
        incumbent.value_rps if incumbent else offer.start,
        beat_start=incumbent is not None,
    )
    if run.failure is not None:
        check_engine(run.failure)
        if run.failure.kind in MACHINE_FAULTS:
            return Outcome.MACHINE
    learn(study, job.rules, run)
    told = told_run(run, job.spec.slo, history)
    frozen = tell(
        study,
        trial,
        told,
        config=plain(dict(config)),
        key=config.key(),
        changed=plain(baseline.changed(trial.params)),
        **lesson_of(job.predictor, run),
        launched=1,
        launches=bench.spent.launches - launches,
        engine_s=bench.spent.engine_s - seconds,
    )
    bench.observer.trial_finished(record_of(frozen), History(study).incumbent())
    return told.outcome


def _fail(
    study: Study, asker: Asker, bench: Bench, trial: Trial, before: tuple[int, float], outcome: str
) -> None:
    """Queue a trial's point again and end the trial as failed, which the sampler does not see."""
    from optuna.trial import TrialState

    state = next(t.state for t in study.get_trials(deepcopy=False) if t.number == trial.number)
    if state is not TrialState.RUNNING:
        return
    asker.hand_back(trial)
    launches, engine_s = bench.spent.launches - before[0], bench.spent.engine_s - before[1]
    attrs = packed({"outcome": outcome, "launches": launches, "engine_s": engine_s})
    for name, value in attrs.items():
        trial.set_user_attr(name, value)
    study.tell(trial, state=TrialState.FAIL)


def _seeds(job: Job, study: Study, baseline: Baseline, trace: Trace) -> list[dict[str, Any]]:
    """The study's seeds, made once."""
    if "seeds" not in study.user_attrs:
        seeds = make_seeds(job, baseline, trace) if job.options.suggestions else []
        study.set_user_attr("seeds", plain(seeds))
    return list(study.user_attrs["seeds"])
