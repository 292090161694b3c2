"""A study from plan to profile, on an engine whose truth is a formula."""

from __future__ import annotations

import json
from dataclasses import replace

import optuna
import pytest
import yaml
from finished_study import Done
from optuna.trial import TrialState
from toy import DEFAULTS, ToyEngine, ToySpace, Watcher, make_job, truth_rps

from tuner.engines.base import Outcome
from tuner.measure import STEP
from tuner.measure.loadtest import LoadTest
from tuner.profiles import load_profile
from tuner.space.config import LaunchConfig
from tuner.spec import LoadMode
from tuner.study import FINALS_WINDOW, StudyPlace, list_studies, profile_path, tune
from tuner.traces import window


def load(done: Done) -> optuna.Study:
    return optuna.load_study(study_name="toy", storage=done.place.url())


def test_finds_more_than_the_default(done: Done) -> None:
    result = done.result
    assert result.recommendation == "tuned"
    assert result.gain is not None and result.gain > 1.5
    assert result.winner is not None
    assert truth_rps({**DEFAULTS, **result.winner.flags}) > 1.5 * truth_rps(DEFAULTS)


def test_optuna_reads_the_study_and_every_told_trial_has_both_constraints(done: Done) -> None:
    study = load(done)
    told = study.get_trials(states=(TrialState.COMPLETE,))
    assert len(told) >= 12
    for trial in told:
        assert list(trial.constraints) == ["crash", "p99"]
        assert all(abs(value) <= 3.0 for value in trial.constraints.values())
        assert trial.value is not None and 0.0 <= trial.value < 1e6
    best = study.best_trial
    assert best.user_attrs["outcome"] == "ok"
    assert best.value == max(t.value or 0.0 for t in told if t.user_attrs["outcome"] == "ok")
    distributions = [t.distributions for t in told]
    assert all(d == distributions[0] for d in distributions)
    json.dumps([t.user_attrs for t in told], allow_nan=False)


def test_trial_0_is_the_default_at_its_effective_values(done: Done) -> None:
    first = load(done).trials[0]
    assert first.params == DEFAULTS
    assert first.user_attrs["origin"] == "vllm-default"
    assert done.engine.launched[0] == LaunchConfig()


def test_the_budget_counts_the_launches_of_the_search(done: Done) -> None:
    records = done.watcher.of("trial_finished")
    launched = [r for r in records if r.outcome in (Outcome.OK, Outcome.SLO, Outcome.CRASH)]
    assert len(launched) == 12
    finals = len(done.watcher.of("final_started"))
    assert done.result.launches == len(done.engine.launched) == 12 + finals
    assert sum(done.result.trials.values()) == len(records)


def test_no_configuration_is_launched_twice_by_the_search(done: Done) -> None:
    search = done.engine.launched[:12]
    assert len(set(search)) == 12


def test_engine_seconds_add_up(done: Done) -> None:
    records = done.watcher.of("trial_finished")
    assert done.result.engine_seconds > sum(r.engine_s for r in records) > 0.0


def test_artefacts(done: Done) -> None:
    folder = done.place.folder
    spec = yaml.safe_load((folder / "spec.yaml").read_text())
    assert spec["slo"] == {"e2e_p99_s": 30.0} and spec["budget"]["trials"] == 12
    best = load(done).best_trial.number
    assert yaml.safe_load((folder / "trials" / str(best) / "config.yaml").read_text())
    replays = json.loads((folder / "trials" / str(best) / "replays.json").read_text())
    assert replays[0]["load"] > 0 and {"verdict", "e2e_s"} <= replays[0].keys()
    assert load_profile(profile_path("toy", done.place.root)) == done.result.profile


def test_the_capacity_is_what_a_load_test_of_the_exported_flags_finds(done: Done) -> None:
    profile = done.result.profile
    assert profile is not None and profile.window == FINALS_WINDOW
    test = LoadTest(
        window(done.job.trace, *profile.window),
        done.job.spec.slo,
        requests=profile.requests,
        seed=profile.seed,
    )
    with ToyEngine().launch(profile.winner.flags, done.place.folder) as server:
        capacity = test.capacity(server.replay, profile.start_rps)
    assert capacity.rps == profile.winner.throughput_rps


def test_every_exported_flag_is_needed(done: Done) -> None:
    winner = done.result.winner
    assert winner is not None and winner.flags
    for flag in winner.flags:
        less = {name: value for name, value in winner.flags.items() if name != flag}
        assert truth_rps({**DEFAULTS, **less}) < truth_rps({**DEFAULTS, **winner.flags})


def test_users_table_goes_on_until_both_break_the_slo(done: Done) -> None:
    rows = done.result.users_table
    assert [r.users for r in rows][:3] == [10, 20, 50]
    assert all(None not in (r.default_p99_s, r.tuned_p99_s) for r in rows)
    last = rows[-1]
    assert last.default_p99_s > 28.5 and last.tuned_p99_s > 28.5  # type: ignore[operator]
    assert rows[-2].tuned_p99_s <= 28.5  # type: ignore[operator]
    winner = done.result.winner
    assert winner is not None and rows[-2].users <= winner.users < last.users


def test_a_finished_study_gives_its_result_again_and_launches_nothing(done: Done) -> None:
    engine, watcher = ToyEngine(), Watcher()
    again = tune(make_job(engine, trials=12), done.place, watcher)
    assert not engine.launched and again.resumed
    assert again.winner == done.result.winner and again.gain == done.result.gain
    assert again.profile == done.result.profile and again.users_table == done.result.users_table
    assert watcher.of("finished") == [again]


def test_the_list_of_studies(done: Done) -> None:
    (entry,) = list_studies(done.place.root)
    assert entry.name == "toy" and entry.state == "finished" and entry.engine == "sim"
    assert entry.gain == done.result.gain and json.dumps(entry.to_json())


def test_the_same_seed_recommends_the_same(done: Done, place: StudyPlace) -> None:
    again = tune(make_job(trials=12), place, Watcher())
    assert again.winner is not None and done.result.winner is not None
    assert again.winner.flags == done.result.winner.flags
    assert again.winner.throughput_rps == done.result.winner.throughput_rps


def test_a_larger_budget_goes_on(place: StudyPlace) -> None:
    engine = ToyEngine()
    tune(make_job(engine, trials=2), place, Watcher())
    result = tune(make_job(engine, trials=4), place, Watcher())
    assert result.resumed
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 4


def test_nothing_to_gain_keeps_the_default(place: StudyPlace) -> None:
    engine = ToyEngine(speed=lambda flags: 2.0)
    result = tune(make_job(engine, trials=5), place, Watcher())
    assert result.recommendation == "default" and result.gain == 1.0
    assert result.winner == result.baseline and result.baseline.throughput_rps > 0
    assert result.profile is not None and result.profile.winner.flags == LaunchConfig()


def test_a_gain_of_one_grid_step_is_not_a_gain(place: StudyPlace) -> None:
    def speed(flags: object) -> float:
        return 2.0 if flags["max-num-seqs"] == 256 else 2.0 * STEP  # type: ignore[index]

    result = tune(make_job(ToyEngine(speed=speed), trials=5), place, Watcher())
    assert result.recommendation == "default"


def test_nothing_meets_the_slo(place: StudyPlace) -> None:
    result = tune(make_job(ToyEngine(alone_s=60.0), trials=4), place, Watcher())
    assert result.recommendation == "none" and result.winner is None and result.gain is None
    assert result.profile is None and not profile_exists(place)
    assert "against 30 s" in result.closest or "too late" in result.closest
    assert result.baseline.throughput_rps == 0.0 and "SLO" in result.baseline.note


def profile_exists(place: StudyPlace) -> bool:
    return (place.folder / "profile.yaml").exists()


def test_a_default_that_misses_the_slo_everywhere_has_no_gain(place: StudyPlace) -> None:
    def speed(flags: object) -> float:
        return 1e-4 if flags["max-num-seqs"] == 256 else 3.0  # type: ignore[index]

    result = tune(make_job(ToyEngine(speed=speed), trials=4), place, Watcher())
    assert result.recommendation == "tuned" and result.gain is None
    assert result.baseline.throughput_rps == 0.0


def test_a_space_without_parameters_measures_the_default(place: StudyPlace) -> None:
    fixed = LaunchConfig.of({**DEFAULTS, "max-num-seqs": 512})
    result = tune(make_job(space=ToySpace(fixed=fixed)), place, Watcher())
    assert result.recommendation == "default"
    assert result.winner is not None and result.winner.flags == fixed


def test_users_as_load(place: StudyPlace) -> None:
    result = tune(make_job(trials=6, load=LoadMode.USERS), place, Watcher())
    assert result.winner is not None and result.winner.users >= result.baseline.users > 1
    assert result.winner.throughput_rps >= result.baseline.throughput_rps > 0


@pytest.mark.parametrize("seed", [1])
def test_better_than_the_default_with_other_seeds(place: StudyPlace, seed: int) -> None:
    result = tune(make_job(trials=8, seed=seed), place, Watcher())
    assert result.gain is not None and result.gain > 1.4


def test_a_named_sampler_starts_from_the_baseline_alone(place: StudyPlace) -> None:
    job = make_job(trials=4)
    job = replace(job, options=replace(job.options, sampler="random", suggestions=False))
    watcher = Watcher()
    tune(job, place, watcher)
    origins = {origin for _, origin, _ in watcher.of("trial_started")}
    assert origins == {"vllm-default", "sampler"}
    assert watcher.of("planned")[0].sampler == "at random"
