"""Trials beside each other, in slots that are processes of their own."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import optuna
import psutil
import pytest
from optuna.trial import TrialState
from side_by_side import LaggingEngine, job_of, slow
from toy import ToyEngine, Watcher

from tuner.space.config import LaunchConfig
from tuner.study import StudyPlace, cards_of, tune


def slot_processes() -> list[psutil.Process]:
    """The slots of this process."""
    return [p for p in psutil.Process().children() if "tuner.slots.host" in p.cmdline()]


def launched_configs(place: StudyPlace) -> list[str]:
    study = optuna.load_study(study_name="toy", storage=place.url())
    told = [t for t in study.trials if t.state is TrialState.COMPLETE and "repeat_of" not in t.user_attrs]
    return [t.user_attrs["detail"]["key"] for t in told if t.user_attrs["outcome"] != "refused"]


def test_every_trial_is_told_once_and_nothing_is_left(place: StudyPlace) -> None:
    watcher = Watcher()
    result = tune(job_of(3, trials=7), place, watcher)
    assert result.recommendation == "tuned" and result.gain is not None and result.gain > 1.3
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 7
    configs = launched_configs(place)
    assert len(configs) == len(set(configs)) == 7
    assert not slot_processes()
    study = optuna.load_study(study_name="toy", storage=place.url())
    assert all(t.state is not TrialState.RUNNING for t in study.trials)
    started = [number for number, _, _ in watcher.of("trial_started")]
    assert len(started) == len(set(started)) == 7


class Killer(Watcher):
    """Kills a slot soon after a trial has begun."""

    def __init__(self, trial: int) -> None:
        super().__init__()
        self._trial = trial

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None:
        super().trial_started(number, origin, config)
        if number == self._trial:
            threading.Timer(0.3, lambda: slot_processes()[0].send_signal(signal.SIGKILL)).start()


def test_a_killed_slot_costs_the_trial_in_hand_only(place: StudyPlace) -> None:
    watcher = Killer(3)
    result = tune(job_of(2, slow, trials=5), place, watcher)
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 5
    assert result.trials["machine"] == 1
    assert any("asked again" in note for note in watcher.of("note"))
    assert not slot_processes()


class Interrupter(Watcher):
    """Ctrl-C when a trial has ended."""

    def trial_finished(self, record: object, best: object) -> None:
        super().trial_finished(record, best)
        if len(self.of("trial_finished")) == 3:
            raise KeyboardInterrupt


def test_ctrl_c_hands_every_trial_back(place: StudyPlace) -> None:
    with pytest.raises(KeyboardInterrupt):
        tune(job_of(3, slow, trials=6), place, Interrupter())
    assert not slot_processes()
    study = optuna.load_study(study_name="toy", storage=place.url())
    assert all(t.state is not TrialState.RUNNING for t in study.trials)
    result = tune(job_of(3, trials=6), place, Watcher())
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 6
    configs = launched_configs(place)
    assert len(configs) == len(set(configs)) == 6


def test_a_client_that_lags_gets_fewer_neighbours(place: StudyPlace) -> None:
    watcher = Watcher()
    result = tune(job_of(2, LaggingEngine, trials=6), place, watcher)
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 6
    assert [note for note in watcher.of("note") if "at most 1 trials" in note]


def test_whether_neighbours_disturb_is_measured_and_said(place: StudyPlace) -> None:
    watcher = Watcher()
    job = job_of(2, noisy, engine=ToyEngine(deterministic=False), trials=5)
    tune(job, place, watcher)
    study = optuna.load_study(study_name="toy", storage=place.url())
    found = study.user_attrs["neighbours"]
    assert found["alone_rps"] == pytest.approx(found["beside_rps"], rel=0.06)
    assert any("neighbours disturb each other little" in note for note in watcher.of("note"))


def noisy() -> ToyEngine:
    return ToyEngine(deterministic=False)


def test_slots_of_two_cards_and_of_one(place: StudyPlace) -> None:
    pool = job_of(4).slots
    assert pool is not None
    one, pair = pool.take(1), pool.take(2)
    assert one is not None and pair is not None
    assert not pool.free(2) and pool.free(1)
    pool.give(one)
    assert pool.free(2)
    two = pool.take(2)
    assert two is not None and two is not one
    pool.close()
    assert not slot_processes()


def test_a_trial_takes_the_cards_of_its_flags() -> None:
    assert cards_of({}) == 1
    assert cards_of({"tensor-parallel-size": 2, "pipeline-parallel-size": 2}) == 4


def test_an_orphaned_slot_ends_by_itself(tmp_path: Path) -> None:
    pool = job_of(1).slots
    assert pool is not None
    engine = pool.take(1)
    assert engine is not None
    (process,) = slot_processes()
    engine.link._pipe.close()  # type: ignore[attr-defined]
    assert process.wait(timeout=20) == 0
