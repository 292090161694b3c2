"""Interrupted studies go on where they stopped; nothing is lost and nothing counted twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from toy import ToyEngine, Watcher, make_job

from tuner.errors import BadRequest
from tuner.study import StudyPlace, TuneResult, tune
from tuner.study.owner import alive, this_owner

TRIALS = 5


def interrupt_at(number: int) -> Callable[[int], None]:
    def hook(count: int) -> None:
        if count == number:
            raise KeyboardInterrupt

    return hook


def launched(result: TuneResult) -> int:
    return result.trials["ok"] + result.trials["slo"] + result.trials["crash"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    place = StudyPlace("toy", tmp_path_factory.mktemp("straight"))
    return tune(make_job(trials=TRIALS), place, Watcher())


@pytest.mark.parametrize("during", ["baseline", "seed launch", "seed replay", "sampled", "finals"])
def test_ctrl_c_and_the_same_command_again(place: StudyPlace, straight: TuneResult, during: str) -> None:
    engine = ToyEngine()
    if during == "baseline":
        engine.before_replay = interrupt_at(3)
    elif during == "seed replay":
        engine.before_replay = interrupt_at(10)
    else:
        launch = {"seed launch": 3, "sampled": TRIALS, "finals": TRIALS + 2}[during]
        engine.before_launch = interrupt_at(launch)
    with pytest.raises(KeyboardInterrupt):
        tune(make_job(engine, trials=TRIALS), place, Watcher())
    assert engine.open_servers == 0
    engine.before_launch = engine.before_replay = lambda _: None
    result = tune(make_job(engine, trials=TRIALS), place, Watcher())
    assert launched(result) == launched(straight) == TRIALS
    assert result.launches == len(engine.launched)
    assert result.winner is not None and straight.winner is not None
    assert result.winner.flags == straight.winner.flags
    study = optuna.load_study(study_name="toy", storage=place.url())
    states = [t.state for t in study.trials]
    assert TrialState.RUNNING not in states and TrialState.WAITING not in states
    assert states.count(TrialState.FAIL) == (during in ("seed launch", "seed replay", "sampled"))


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from toy import ToyEngine, Watcher, make_job
from tuner.study import StudyPlace, tune

def die(count):
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

tune(make_job(ToyEngine(before_launch=die), trials=5), StudyPlace("toy", Path(sys.argv[2])), Watcher())
"""


@pytest.mark.parametrize("launch", [3])
def test_kill_9_and_the_same_command_again(place: StudyPlace, straight: TuneResult, launch: int) -> None:
    here = str(Path(__file__).parent)
    ended = subprocess.run([sys.executable, "-c", KILLED, here, str(place.root), str(launch)], check=False)
    assert ended.returncode == -signal.SIGKILL
    result = tune(make_job(trials=TRIALS), place, Watcher())
    assert launched(result) == TRIALS
    assert result.winner is not None and straight.winner is not None
    assert result.winner.flags == straight.winner.flags
    study = optuna.load_study(study_name="toy", storage=place.url())
    assert all(t.state in (TrialState.COMPLETE, TrialState.FAIL) for t in study.trials)


def test_a_running_study_is_not_run_twice(place: StudyPlace) -> None:
    tune(make_job(trials=1), place, Watcher())
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        study = optuna.load_study(study_name="toy", storage=place.url())
        from tuner.study import owner

        me = this_owner()
        theirs = {**me, "pid": other.pid, "started": owner._started(other.pid)}
        study.set_user_attr("owner", theirs)
        with pytest.raises(BadRequest, match=f"process {other.pid} .* is running it"):
            tune(make_job(trials=1), place, Watcher())
    finally:
        other.kill()
        other.wait()
    assert not alive(theirs, shared=False)
    assert tune(make_job(trials=1), place, Watcher()).resumed


def test_owners() -> None:
    me = this_owner()
    assert alive(me, shared=False)
    assert not alive({**me, "started": "another boot/1"}, shared=False)
    assert alive({**me, "host": "elsewhere"}, shared=True)
    assert not alive({**me, "host": "elsewhere"}, shared=False)


def test_another_job_in_the_same_study_is_refused(place: StudyPlace) -> None:
    tune(make_job(trials=1), place, Watcher())
    with pytest.raises(BadRequest, match="another job .*slo differs"):
        tune(make_job(trials=1, slo_s=20.0), place, Watcher())
    with pytest.raises(BadRequest, match="seed"):
        tune(make_job(trials=1, seed=5), place, Watcher())


def test_a_gaussian_study_is_not_resumed_without_torch(
    place: StudyPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.study import sampler

    tune(make_job(trials=2), place, Watcher())
    study = optuna.load_study(study_name="toy", storage=place.url())
    study.set_user_attr("sampler", "gp")
    monkeypatch.setattr(sampler, "find_spec", lambda name: None)
    with pytest.raises(BadRequest, match="torch and scipy"):
        tune(make_job(trials=3), place, Watcher())


def test_what_was_learned_outlives_the_process(place: StudyPlace) -> None:
    engine = ToyEngine()
    tune(make_job(engine, trials=4), place, Watcher())
    again = make_job(engine, trials=5)
    tune(again, place, Watcher())
    assert ("gpu-memory-utilization", None, 0.955) in again.rules.learned or not any(
        config.get("gpu-memory-utilization", 0) > 0.955 for config in engine.launched
    )


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match="cannot be written"):
        tune(make_job(trials=1), StudyPlace("toy", tmp_path / "file"), Watcher())


def test_a_bad_storage_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="storage nonsense://x"):
        tune(make_job(trials=1), StudyPlace("toy", tmp_path, "nonsense://x"), Watcher())
