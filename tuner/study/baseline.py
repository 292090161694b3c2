"""Trial 0: vLLM's own defaults, and the search space widened to hold them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.engines.base import MACHINE_FAULTS, NO_ENGINE, LaunchFailure
from tuner.errors import EngineUnavailable
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue
from tuner.study.accounts import add_beyond_trials
from tuner.study.attrs import attrs_of, packed
from tuner.study.history import BASELINE, History, record_of
from tuner.study.job import Job, Space
from tuner.study.learn import learn, lesson_of
from tuner.study.load import Offer
from tuner.study.patience import PREDICTED
from tuner.study.storage import StudyPlace, plain
from tuner.study.tell import told_run
from tuner.study.trial import Bench, Run

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

MODEL_LEN = "max-model-len"


@dataclass(frozen=True, slots=True)
class Baseline:
    """The defaults as launched. `effective` are the values in force, `params` the same as a point of `space`,
    which has been widened to hold it."""

    config: LaunchConfig
    effective: Mapping[str, FlagValue]
    params: Mapping[str, Any]
    space: Space
    note: str

    def changed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of another point that differ."""
        return {name: value for name, value in params.items() if value != self.params.get(name)}

    def flags_changed(self, config: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
        """The flags of a configuration that are neither the user's own nor equal to the value in force."""
        return {
            flag: value
            for flag, value in config.items()
            if flag not in self.config and not same(value, self.effective.get(flag))
        }

    def least(self, config: Mapping[str, FlagValue]) -> LaunchConfig:
        """The configuration without the flags that set what is in force anyway."""
        return LaunchConfig.of({**self.config, **_overridden(config, self), **self.flags_changed(config)})


def _overridden(config: Mapping[str, FlagValue], baseline: Baseline) -> dict[str, FlagValue]:
    return {flag: value for flag, value in config.items() if flag in baseline.config}


def same(one: FlagValue, other: FlagValue) -> bool:
    """Whether two values of a flag are the same setting (numbers by value, True is not 1)."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def find_baseline(job: Job, place: StudyPlace, study: Study, bench: Bench, offer: Offer) -> Baseline:
    """The study's baseline: trial 0 as it was told, or launched and told now.

    Raises:
        EngineUnavailable: no configuration can start here, or the machine fails again and again.
    """
    trial = History(study).baseline()
    if trial is None:
        trial = _measure(job, place, study, bench, offer)
    return _restored(job, trial)


def _restored(job: Job, trial: FrozenTrial) -> Baseline:
    attrs = attrs_of(trial)
    effective = {name: LaunchConfig.of({name: value})[name] for name, value in attrs["effective"].items()}
    return Baseline(
        config=LaunchConfig.of(attrs["config"]),
        effective=effective,
        params=dict(trial.params),
        space=job.space.widened(effective),
        note=attrs["note"],
    )


def _measure(job: Job, place: StudyPlace, study: Study, bench: Bench, offer: Offer) -> FrozenTrial:
    import optuna

    history = History(study)
    config = job.space.baseline()
    launches, seconds = bench.spent.launches, bench.spent.engine_s
    said = {}
    if job.predictor is not None:
        rps = job.predictor.capacity_rps(config)
        said = {PREDICTED: {"rps": rps, "spread": job.predictor.spread(config), "launches_before": 0}}
    bench.observer.trial_started(0, BASELINE, config)
    note, tried = "", 1
    try:
        run = _launch(job, place, bench, config, offer)
        if run.failure is not None and MODEL_LEN not in config and job.spec.budget.trials > 1:
            first, tried = run.failure, 2
            learn(study, job.rules, run)
            fitted = LaunchConfig.of({**config, MODEL_LEN: "auto"})
            bench.observer.trial_started(0, BASELINE, fitted)
            again = _launch(job, place, bench, fitted, offer)
            if again.failure is None:
                config, run = fitted, again
                note = f"vLLM's defaults do not start here ({first.cause}); with max-model-len auto they do"
        learn(study, job.rules, run)
        if run.failure is not None:
            note = f"vLLM's defaults do not start here: {run.failure.cause}"
    except BaseException:
        add_beyond_trials(study, bench.spent.launches - launches, bench.spent.engine_s - seconds)
        raise
    facts = dict(run.facts.effective) if run.facts else {}
    effective = {**job.defaults, **facts, **{k: v for k, v in config.items() if v != "auto"}}
    space = job.space.widened(effective)
    told = told_run(run, job.spec.slo, history)
    if run.capacity is not None and run.capacity.rps <= 0.0:
        note = note or "vLLM's defaults miss the SLO at every load"
    params = space.params_of(effective)
    attrs = {
        **told.attrs,
        **lesson_of(job.predictor, run),
        **(said if run.config == job.space.baseline() else {}),
        "origin": BASELINE,
        "outcome": told.outcome.value,
        "config": plain(dict(config)),
        "key": config.key(),
        "same_as": space.config(params).key(),
        "effective": plain(effective),
        "note": note,
        "launched": tried,
        "launches": bench.spent.launches - launches,
        "engine_s": bench.spent.engine_s - seconds,
    }
    # one transaction: a killed process leaves either no trial 0 or a whole one
    study.add_trial(
        optuna.trial.create_trial(
            params=params,
            distributions=space.distributions(),
            value=told.value,
            constraints=told.constraints,
            user_attrs=packed(attrs),
        )
    )
    history = History(study)
    trial = history.baseline()
    assert trial is not None
    bench.observer.trial_finished(record_of(trial), history.incumbent())
    return trial


def _launch(job: Job, place: StudyPlace, bench: Bench, config: LaunchConfig, offer: Offer) -> Run:
    return launch_patiently(
        job, lambda: bench.find_capacity(config, place.trial_folder(0), offer, offer.start)
    )


def launch_patiently(job: Job, launch: Any) -> Run:
    """Launch again while the machine is at fault.

    Raises:
        EngineUnavailable: no configuration can mend it, or it goes on.
    """
    for attempt in range(1, job.options.fault_tries + 1):
        run: Run = launch()
        check_engine(run.failure)
        if run.failure is None or run.failure.kind not in MACHINE_FAULTS:
            return run
        if attempt < job.options.fault_tries:
            wait_out_fault(job, attempt)
    assert run.failure is not None
    raise machine_fault(run.failure, job.options.fault_tries)


def check_engine(failure: LaunchFailure | None) -> None:
    """Raise EngineUnavailable for a failure that no configuration can mend."""
    if failure is not None and failure.kind in NO_ENGINE:
        raise EngineUnavailable(failure.cause, failure.mend or "see the server's log")


def machine_fault(failure: LaunchFailure, tries: int) -> EngineUnavailable:
    """What the user is told when the machine stays at fault."""
    return EngineUnavailable(
        f"{failure.cause} ({tries} launches in a row)", failure.mend or "free the machine and run it again"
    )


def wait_out_fault(job: Job, attempt: int) -> None:
    """Give the machine time before the next try; a deterministic engine needs none."""
    if not job.engine.deterministic:
        time.sleep(job.options.fault_wait_s * attempt)
