"""Going on where a study stopped: trials of a dead process are handed back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.profiles import save_profile
from tuner.study.history import SAMPLER
from tuner.study.job import Job, Space
from tuner.study.records import TuneResult
from tuner.study.results import result_from_json, result_to_json
from tuner.study.storage import StudyPlace

if TYPE_CHECKING:
    from optuna.study import Study


def reap(study: Study, space: Space) -> int:
    """Hand back every running trial: its point is queued again, the trial ends as failed.

    The study is owned by this process alone (`storage.open_study`), so a running trial belongs to nobody.
    Queued before failed: a process killed in between leaves a point twice, which is told from its record, and
    never one too few. Returns how many there were.
    """
    from optuna.trial import TrialState

    names = set(space.distributions())
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    for trial in running:
        if set(trial.params) == names:
            attrs = {"again_of": trial.number, "origin": trial.user_attrs.get("origin", SAMPLER)}
            study.enqueue_trial(dict(trial.params), user_attrs=attrs)
        study.tell(trial.number, state=TrialState.FAIL)
    return len(running)


def finished_result(study: Study, job: Job) -> TuneResult | None:
    """The stored result of a study that has ended; None where a larger budget now lets it go on."""
    kept = study.user_attrs.get("result")
    if kept is None:
        return None
    trials, engine_s = kept["budget"]["trials"], kept["budget"]["engine_s"]
    budget = job.spec.budget
    more_time = engine_s is not None and (budget.engine_s is None or budget.engine_s > engine_s)
    if budget.trials > trials or more_time:
        return None
    return replace(result_from_json(kept["result"]), resumed=True)


def keep_result(study: Study, job: Job, place: StudyPlace, result: TuneResult) -> None:
    """Store the result in the study, and the profile beside it."""
    if result.profile is not None:
        save_profile(result.profile, profile_file(place))
    else:
        profile_file(place).unlink(missing_ok=True)
    budget = {"trials": job.spec.budget.trials, "engine_s": job.spec.budget.engine_s}
    study.set_user_attr("result", {"budget": budget, "result": result_to_json(result)})


def profile_file(place: StudyPlace) -> Path:
    """`ROOT/NAME/profile.yaml`."""
    return place.folder / "profile.yaml"
