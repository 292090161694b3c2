"""What earlier studies in the folder found, and what is kept of what the guide simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import optuna
from toy import Watcher, make_job

from tuner.profiles import load_profile, save_profile
from tuner.study import StudyPlace, tune
from tuner.study.history import History
from tuner.study.memory import recollect
from tuner.study.patience import enough, patience_rule
from tuner.study.simulated import Simulated, simulated_place
from tuner.study.storage import open_storage


def test_the_winner_of_the_same_version_is_launched_first(tmp_path: Path) -> None:
    first = tune(make_job(trials=6, seed=1), StudyPlace("first", tmp_path), Watcher())
    assert first.recommendation == "tuned" and first.winner is not None
    watcher = Watcher()
    tune(make_job(trials=3, seed=2), StudyPlace("second", tmp_path), watcher)
    plan = watcher.of("planned")[0]
    assert any("first" in note and "won before" in note for note in plan.notes)
    _, origin, config = watcher.of("trial_started")[1]
    assert origin == "seed"
    assert dict(first.winner.flags).items() <= dict(config).items()


def test_other_versions_are_only_hints_and_broken_profiles_are_passed_over(tmp_path: Path) -> None:
    tune(make_job(trials=6, seed=1), StudyPlace("first", tmp_path), Watcher())
    path = tmp_path / "first" / "profile.yaml"
    save_profile(replace(load_profile(path), vllm_version="0.18.0"), path)
    for name, text in {"broken": "{", "other": "a: [", "list": "- 1", "empty": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "profile.yaml").write_text(text)
    found = recollect(make_job(trials=3), StudyPlace("second", tmp_path))
    assert not found.same and len(found.others) == 1
    assert "0.18.0" in found.line()


def test_what_was_simulated_is_in_a_study_of_its_own(tmp_path: Path) -> None:
    job, place = make_job(trials=2), StudyPlace("mine", tmp_path)
    tune(job, place, Watcher())
    study = optuna.load_study(study_name="mine", storage=open_storage(place))
    before = len(History(study).all)
    distributions = job.space.distributions()
    point = dict(study.trials[0].params)
    kept = Simulated(place)
    kept.keep(distributions, [(point, job.space.config(point), 3.0, 0.1)], launches=1)
    assert len(study.get_trials()) == before
    assert [s.study_name for s in study._storage.get_all_studies()] == ["mine"]
    own = simulated_place(place)
    other = optuna.load_study(study_name="mine-simulated", storage=own.storage)
    assert [t.value for t in other.trials] == [3.0]
    assert Simulated(place).thought_of(2) == [point] and not Simulated(place).thought_of(1)


def test_patience() -> None:
    assert not enough(0.004, 7, exact=False) and enough(0.004, 8, exact=False)
    assert enough(0.004, 1, exact=True) and not enough(0.006, 9, exact=True)
    assert patience_rule(16, exact=True).startswith("stops before 16 launches")
    assert patience_rule(16, exact=False).startswith("from launch 8 on stops before 16 launches")
    assert "stops" not in patience_rule(8, exact=False)
