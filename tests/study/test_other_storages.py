"""Storages that hosts share besides PostgreSQL, one tuner and one worker each: MySQL, Optuna's gRPC proxy."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mariadb
import optuna
import pytest
from optuna.trial import TrialState
from toy import Watcher, make_job

from tuner.study import StudyPlace, join_study, tune, work

PROXY = """
import sys, optuna
storage = optuna.storages.RDBStorage(sys.argv[1])
optuna.storages.run_grpc_proxy_server(storage, host="127.0.0.1", port=int(sys.argv[2]))
"""


@contextmanager
def proxy(folder: Path) -> Iterator[str]:
    """The address of Optuna's proxy in front of a database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    database = f"sqlite:///{folder}/proxied.db"
    process = subprocess.Popen([sys.executable, "-c", PROXY, database, str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60.0
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"grpc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["mysql", "grpc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "mysql":
        pytest.importorskip("pymysql", reason="pip install 'kimi-tune[mysql]'")
        if mariadb.server() is None:
            pytest.skip("MariaDB's server is not installed (apt install mariadb-server)")
        with mariadb.mysql() as address:
            yield address
    else:
        pytest.importorskip("grpc", reason="pip install 'kimi-tune[grpc]'")
        pytest.importorskip("google.protobuf", reason="pip install 'kimi-tune[grpc]'")
        with proxy(tmp_path) as address:
            yield address


def test_a_tuner_and_a_worker_share_it(url: str, tmp_path: Path) -> None:
    place = StudyPlace("toy", tmp_path / "tuner", url)
    done: list[int] = []

    def help_out() -> None:
        there = StudyPlace("toy", tmp_path / "worker", url)
        done.append(work(make_job(trials=1), there, join_study(there), Watcher(), idle_s=60.0))

    class Joined(Watcher):
        def trial_finished(self, record: object, best: object) -> None:
            super().trial_finished(record, best)
            if len(self.of("trial_finished")) == 1:
                worker.start()
                until_it_beats(place)

    worker = threading.Thread(target=help_out)
    result = tune(make_job(trials=6), place, Joined())
    worker.join(timeout=60)
    assert result.trials["ok"] + result.trials["slo"] + result.trials["crash"] == 6
    trials = join_study(place).get_trials(states=(TrialState.COMPLETE,))
    keys = [key for trial in trials if (key := told_key(trial)) is not None]
    assert len(keys) == len(set(keys)) == 6
    assert len(done) == 1 and done[0] >= 1
    assert "mariadb-secret" not in (place.folder / "spec.yaml").read_text()


def told_key(trial: optuna.trial.FrozenTrial) -> str | None:
    attrs = {**trial.user_attrs, **trial.user_attrs.get("detail", {})}
    return None if "repeat_of" in attrs or attrs["outcome"] == "refused" else str(attrs["key"])


def until_it_beats(place: StudyPlace) -> None:
    study = join_study(place)
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        signs = [value["beat"] for key, value in study.user_attrs.items() if key.startswith("worker:")]
        if any(beat >= 2 for beat in signs):
            return
        time.sleep(0.2)
    raise TimeoutError("the worker did not join")
