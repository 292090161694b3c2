"""The tune job from plan to result: baseline, search, finals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.study.aside import locked
from tuner.study.ask import Asker
from tuner.study.baseline import Baseline, find_baseline
from tuner.study.budget import Costs
from tuner.study.conclude import conclude
from tuner.study.crew import Crew, make_crew
from tuner.study.finals import hold_finals
from tuner.study.guide import make_guide
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.learn import relearn
from tuner.study.load import Offer, make_offer
from tuner.study.memory import Memory, points_of, recollect
from tuner.study.plan import make_plan, replay_estimate_s
from tuner.study.records import Observer, TuneResult
from tuner.study.remote import Helped
from tuner.study.resume import finished_result, keep_result, reap
from tuner.study.sampler import recorded_sampler
from tuner.study.search import Search
from tuner.study.seeds import make_seeds
from tuner.study.storage import StudyPlace, open_study, plain
from tuner.study.trial import Bench
from tuner.study.windows import split
from tuner.traces import Trace

if TYPE_CHECKING:
    from optuna.study import Study


def tune(job: Job, place: StudyPlace, observer: Observer) -> TuneResult:
    """Run a study to its end, or print a finished one's result again.

    A study that was interrupted goes on where it stopped. The engine is not closed.

    Raises:
        BadRequest: the study belongs to another job or process, or the trace cannot be used.
        EngineUnavailable: the engine cannot be run here.
        KeyboardInterrupt: passed on, after the server is gone and its trial is queued again.
    """
    windows = split(job.trace, job.spec.load)
    if job.slots is not None:
        observer = locked(observer)
    with open_study(job, place, observer.note) as study:
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
        seeds, hints = _seeds(job, place, study, baseline, windows.search)
        guide = make_guide(job, place, baseline, windows.search, hints)
        asker = Asker(job, study, baseline, sampler, seeds, guide)
        _search(job, place, study, bench, offer, baseline, asker)
        asker.lessons.catch_up(study)  # a study that resumes here has asked for nothing
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
    replays = history.replays_s()
    return Costs(launch_s, sum(replays) / len(replays) if replays else replay_estimate_s(job, offer))


def _search(
    job: Job,
    place: StudyPlace,
    study: Study,
    bench: Bench,
    offer: Offer,
    baseline: Baseline,
    asker: Asker,
) -> None:
    def helped(crew: Crew) -> Crew:
        return Helped(crew, study, bench.observer) if place.shared else crew

    crew = make_crew(job, bench.observer, offer, helped)
    search = Search(job, place, study, bench, offer, baseline, asker, crew, costs)
    try:
        search.run()
    except BaseException:
        crew.close()
        search.hand_back()
        raise
    crew.close()


def _seeds(
    job: Job, place: StudyPlace, study: Study, baseline: Baseline, trace: Trace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The study's seeds, which are launched first, and hints for its guide; made once."""
    if "seeds" not in study.user_attrs:
        earlier = recollect(job, place) if job.options.suggestions else Memory()
        seeds = points_of(earlier.same, job, baseline)
        if job.options.suggestions and job.predictor is None:
            seeds += [point for point in make_seeds(job, baseline, trace) if point not in seeds]
        study.set_user_attr("hints", plain(points_of(earlier.others, job, baseline)))
        study.set_user_attr("seeds", plain(seeds))
    return list(study.user_attrs["seeds"]), list(study.user_attrs.get("hints", []))
