"""Several hosts: workers that share a PostgreSQL with the tuner. KIMI_TUNE_LONG=1 runs the long form."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from postgres import Database, database, programs
from toy import Watcher, make_job

from tuner.errors import BadRequest
from tuner.study import StudyPlace, join_study, tune, work

pytest.importorskip("psycopg", reason="pip install 'kimi-tune[postgres]'")
if programs() is None:
    pytest.skip("PostgreSQL's server is not installed (apt install postgresql)", allow_module_level=True)

LONG = bool(os.environ.get("KIMI_TUNE_LONG"))
WORKERS, TRIALS = (8, 200) if LONG else (2, 10)
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from toy import Watcher, make_job
from tuner.study import StudyPlace, join_study, work
place = StudyPlace("toy", Path(sys.argv[2]), sys.argv[3])
print(work(make_job(trials=1), place, join_study(place), Watcher(), idle_s=120.0))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as running:
        yield running


@pytest.fixture
def place(server: Database, tmp_path: Path, request: pytest.FixtureRequest) -> StudyPlace:
    return StudyPlace(request.node.name, tmp_path / "tuner", server.url)


class Workers:
    """Worker processes, started as soon as the study is there."""

    def __init__(self, place: StudyPlace, count: int, folder: Path) -> None:
        self.place = place
        here = str(Path(__file__).parent)
        script = WORKER.replace('"toy", Path', f'"{place.name}", Path')
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, here, str(folder / f"worker-{i}"), str(place.storage)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(count)
        ]

    def joined(self) -> Workers:
        """Wait until all have given two signs of life."""
        study = join_study(self.place)
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            signs = [v["beat"] for k, v in study.user_attrs.items() if k.startswith("worker:")]
            if sum(beat >= 2 for beat in signs) >= len(self.processes):
                return self
            time.sleep(0.2)
        raise TimeoutError("workers did not join")

    def ended(self) -> int:
        """Wait for all; how many tasks they did."""
        done = 0
        for process in self.processes:
            out, _ = process.communicate(timeout=120)
            done += int(out or 0)
        return done

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class WhenBaselineIsTold(Watcher):
    """Calls something once the study is there and its baseline told, and something at a later trial."""

    def __init__(self, first, later=lambda: None, at: int = TRIALS // 2) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self._first, self._later, self._at = first, later, at

    def trial_finished(self, record: object, best: object) -> None:
        super().trial_finished(record, best)
        if len(self.of("trial_finished")) == 1:
            self._first()
        if len(self.of("trial_finished")) == self._at:
            self._later()


def told(place: StudyPlace) -> list[optuna.trial.FrozenTrial]:
    study = join_study(place)
    assert all(t.state is not TrialState.RUNNING for t in study.trials)
    return [
        t
        for t in study.get_trials(states=(TrialState.COMPLETE,))
        if "repeat_of" not in t.user_attrs and t.user_attrs["outcome"] != "refused"
    ]


def test_the_database_restarts_in_the_middle_and_every_trial_is_told_once(
    place: StudyPlace, server: Database, tmp_path: Path
) -> None:
    started: list[Workers] = []

    def restart() -> None:
        server.stop(at_once=True)
        time.sleep(2.0)
        server.start()

    watcher = WhenBaselineIsTold(
        lambda: started.append(Workers(place, WORKERS, tmp_path).joined()),
        lambda: threading.Thread(target=restart).start(),
    )
    try:
        job = make_job(trials=TRIALS)
        begun = time.monotonic()
        result = tune(job, place, watcher)
        seconds = time.monotonic() - begun
        assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == TRIALS
        assert len(told(place)) == TRIALS
        keys = [t.user_attrs["detail"]["key"] for t in told(place)]
        assert len(set(keys)) == TRIALS
        done = started[0].ended()
        print(f"{done} of {TRIALS} trials by {WORKERS} workers in {seconds:.0f} s")
        assert done >= (TRIALS // 2 if LONG else 1)
    finally:
        for workers in started:
            workers.kill()


def test_a_killed_worker_costs_the_trial_in_hand_only(
    place: StudyPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.study import heart

    monkeypatch.setattr(heart, "LOST_S", 4.0)
    started: list[Workers] = []

    def kill() -> None:
        started[0].processes[0].send_signal(signal.SIGKILL)

    watcher = WhenBaselineIsTold(lambda: started.append(Workers(place, 1, tmp_path).joined()), kill, at=5)
    try:
        result = tune(make_job(trials=8), place, watcher)
        assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 8
        assert len(told(place)) == 8
    finally:
        started[0].kill()


def test_a_worker_with_another_job_or_gpu_is_refused(place: StudyPlace, tmp_path: Path) -> None:
    tune(make_job(trials=1), place, Watcher())
    study = join_study(place)
    with pytest.raises(BadRequest, match="another slo"):
        work(make_job(slo_s=20.0), place, study, Watcher())
    job = make_job()
    with pytest.raises(BadRequest, match="another gpu"):
        work(replace(job, gpu=replace(job.gpu, name="H100-80G")), place, study, Watcher())
    assert work(job, place, study, Watcher()) == 0
    with pytest.raises(BadRequest, match="not in that storage"):
        join_study(replace(place, name="elsewhere"))


def test_a_second_tuner_is_refused_and_takes_over_when_the_first_is_gone(place: StudyPlace) -> None:
    tune(make_job(trials=1), place, Watcher())
    study = join_study(place)
    study.set_user_attr("owner", {"host": "elsewhere", "pid": 7, "started": "x", "token": "t"})
    ended = threading.Event()

    def beat() -> None:
        other = join_study(place)
        for number in range(100):
            if ended.wait(0.5):
                return
            other.set_user_attr("owner_beat", {"of": "t", "beat": number})

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(BadRequest, match="process 7 on elsewhere is running it"):
            tune(make_job(trials=2), replace(place, root=place.root / "second"), Watcher())
    finally:
        ended.set()
        thread.join()
    result = tune(make_job(trials=2), place, Watcher())
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 2
