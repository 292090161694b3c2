"""Trials that do not end well: crashes, refusals, faults of the machine, engines that are not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from toy import DEFAULTS, ToyEngine, ToyRules, ToySpace, Watcher, make_job

from tuner.engines.base import FailureKind, LaunchFailure, Outcome
from tuner.errors import EngineUnavailable
from tuner.space.config import LaunchConfig
from tuner.study import StudyPlace, ask, tune
from tuner.study.ask import PATIENCE


def trials(place: StudyPlace) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="toy", storage=place.url()).trials


def failing(kind: FailureKind, *launches: int) -> Any:
    def hook(count: int) -> None:
        if count in launches:
            raise LaunchFailure(kind, "it failed", seconds=11.0)

    return hook


def test_a_crash_is_infeasible_and_no_throughput_of_zero(place: StudyPlace) -> None:
    engine = ToyEngine(before_launch=failing(FailureKind.OOM, 3))
    result = tune(make_job(engine, trials=5), place, Watcher())
    (crash,) = [t for t in trials(place) if t.user_attrs["outcome"] == "crash"]
    before = [t for t in trials(place) if t.number < crash.number]
    assert crash.state is TrialState.COMPLETE
    assert crash.constraints["crash"] == 1.0
    assert crash.constraints["p99"] == max(t.constraints["p99"] for t in before)
    assert crash.value == min(t.value or 0.0 for t in before) and crash.value > 0.0
    assert crash.user_attrs["detail"]["failure"] == "oom" and crash.user_attrs["cause"] == "it failed"
    assert crash.user_attrs["detail"]["engine_s"] == 11.0
    assert result.trials["crash"] == 1


def test_a_server_that_dies_under_load_is_a_crash(place: StudyPlace) -> None:
    def die(count: int) -> None:
        if count == 12:
            raise LaunchFailure(FailureKind.ENGINE_DEAD, "engine dead", seconds=0.0)

    engine = ToyEngine(before_replay=die)
    watcher = Watcher()
    tune(make_job(engine, trials=4), place, watcher)
    (crash,) = [r for r in watcher.of("trial_finished") if r.outcome is Outcome.CRASH]
    assert crash.failure is FailureKind.ENGINE_DEAD and engine.open_servers == 0


def test_a_fault_of_the_machine_is_asked_again_and_never_scored(place: StudyPlace) -> None:
    engine = ToyEngine(before_launch=failing(FailureKind.GPU_BUSY, 3, 4))
    result = tune(make_job(engine, trials=5), place, Watcher())
    failed = [t for t in trials(place) if t.state is TrialState.FAIL]
    assert [t.user_attrs["outcome"] for t in failed] == ["machine", "machine"]
    assert result.trials["machine"] == 2
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 5
    assert engine.launched[2] == engine.launched[3] == engine.launched[4]
    assert result.launches == len(engine.launched)


def test_a_machine_that_stays_at_fault_ends_the_job(place: StudyPlace) -> None:
    engine = ToyEngine(before_launch=failing(FailureKind.PORT, 3, 4, 5))
    with pytest.raises(EngineUnavailable, match="3 launches in a row"):
        tune(make_job(engine, trials=5), place, Watcher())
    engine.before_launch = lambda _: None
    assert tune(make_job(engine, trials=5), place, Watcher()).recommendation == "tuned"


@pytest.mark.parametrize("launch", [1, 3])
def test_an_engine_that_no_flag_can_mend_ends_the_job(place: StudyPlace, launch: int) -> None:
    engine = ToyEngine(before_launch=failing(FailureKind.DRIVER, launch))
    with pytest.raises(EngineUnavailable, match="it failed"):
        tune(make_job(engine, trials=5), place, Watcher())
    assert len(engine.launched) == launch
    assert all(t.state is not TrialState.RUNNING for t in trials(place))


def test_bounds_of_a_failure_refuse_later_asks(place: StudyPlace) -> None:
    rules = ToyRules()

    engine = ToyEngine()
    tune(make_job(engine, trials=8, rules=rules, seed=3), place, Watcher())
    over = [c for c in engine.launched if c.get("gpu-memory-utilization", 0.0) > 0.955]
    assert len(over) <= 1 and (len(over) == len(rules.learned))
    refused = [t for t in trials(place) if t.user_attrs.get("outcome") == "refused"]
    for trial in refused:
        assert trial.constraints["crash"] == 1.0 and trial.user_attrs["cause"]


def test_asks_that_are_refused_cost_nothing_and_end_in_an_untried_point(
    place: StudyPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "PATIENCE", 8)
    assert PATIENCE == 50

    def allowed(config: Mapping[str, Any]) -> bool:
        return config.get("max-num-seqs") == 100

    space = ToySpace(fixed=LaunchConfig.of({k: v for k, v in DEFAULTS.items() if k != "max-num-seqs"}))
    rules = ToyRules(refuse=lambda config: not allowed(config))
    engine = ToyEngine()
    result = tune(make_job(engine, trials=3, space=space, rules=rules), place, Watcher())
    assert {c.get("max-num-seqs") for c in engine.launched} <= {None, 100}
    assert result.trials["refused"] >= 8
    assert result.trials["ok"] + result.trials["slo"] <= 2


def test_a_small_space_is_tried_once_and_then_the_search_ends(place: StudyPlace) -> None:
    kept = {k: v for k, v in DEFAULTS.items() if k != "enable-prefix-caching"}
    engine = ToyEngine()
    job = make_job(engine, trials=10, space=ToySpace(fixed=LaunchConfig.of(kept)))
    result = tune(job, place, Watcher())
    assert result.trials["ok"] + result.trials["slo"] == 2
    told = [t for t in trials(place) if "repeat_of" in t.user_attrs]
    for trial in told:
        first = trials(place)[trial.user_attrs["repeat_of"]]
        assert trial.value == first.value and trial.constraints == first.constraints


def test_a_default_that_does_not_start_is_tried_with_the_length_fitted(place: StudyPlace) -> None:
    def hook(count: int) -> None:
        if count == 1:
            raise LaunchFailure(FailureKind.MODEL_LEN, "the KV cache is too small", seconds=50.0)

    engine = ToyEngine(before_launch=hook)
    result = tune(make_job(engine, trials=4), place, Watcher())
    assert engine.launched[1] == LaunchConfig.of({"max-model-len": "auto"})
    assert "max-model-len auto" in result.baseline.note and "too small" in result.baseline.note
    assert result.baseline.flags == LaunchConfig.of({"max-model-len": "auto"})
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 3
    assert result.winner is not None and "max-model-len" in result.winner.flags


def test_a_default_that_never_starts_leaves_the_gain_open(place: StudyPlace) -> None:
    engine = ToyEngine(before_launch=failing(FailureKind.KV_MEMORY, 1, 2))
    result = tune(make_job(engine, trials=6), place, Watcher())
    first = trials(place)[0]
    assert first.constraints["crash"] == 1.0 and first.params == DEFAULTS
    assert "do not start" in result.baseline.note
    assert result.recommendation == "tuned" and result.winner is not None


def test_nothing_starts(place: StudyPlace) -> None:
    engine = ToyEngine(before_launch=failing(FailureKind.KV_MEMORY, *range(1, 40)))
    result = tune(make_job(engine, trials=4), place, Watcher())
    assert result.recommendation == "none" and result.closest == "no configuration started: it failed"


def test_engine_time_keeps_the_finals_back(place: StudyPlace) -> None:
    engine, watcher = ToyEngine(), Watcher()
    result = tune(make_job(engine, trials=50, engine_s=7_500.0), place, watcher)
    records = watcher.of("trial_finished")
    assert 1 < len([r for r in records if r.outcome is not Outcome.REFUSED]) < 50
    before_last = sum(r.engine_s for r in records[:-1])
    assert before_last < 7_500.0
    assert result.winner is not None


def test_one_trial_is_the_default_alone(place: StudyPlace) -> None:
    engine = ToyEngine()
    result = tune(make_job(engine, trials=1), place, Watcher())
    assert result.recommendation == "default"
    assert set(engine.launched) == {LaunchConfig()}
