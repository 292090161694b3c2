"""A study's processes, and what is done to them."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import psutil
from victim import Setting, plainly, run_tuner, run_worker

MARK = "KIMI_TUNE_CHAOS"
LOCKED_S = 2.0
_FORK = multiprocessing.get_context("fork")
_ALONE = ("kill tuner", "ctrl-c", "ctrl-c twice", "terminate tuner", "storage locked", "disk full")
FAULTS = {
    "alone": _ALONE,
    "beside": (*_ALONE, "kill engine", "kill engine and tuner"),
    "hosts": (*_ALONE[:4], "connections cut", "kill worker", "terminate worker", "kill worker and tuner"),
}
"""What can befall a study, by where it runs."""
T = TypeVar("T")


def in_child(call: Callable[..., T], *args: Any) -> T:
    """The call's result from a process of its own: a database opened here would be open in later forks."""
    with ProcessPoolExecutor(1, _FORK) as pool:
        return pool.submit(call, *args).result()


class Study:
    """One study: its tuner, in a fork of this process, the slots that it starts, and perhaps a worker."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.mark = uuid.uuid4().hex
        self.tuner: BaseProcess | None = None
        self.worker: BaseProcess | None = None
        self._pipe = -1

    def start(self) -> None:
        """Start or resume it; a worker joins where hosts share it and none is left."""
        (self.setting.folder / "result.json").unlink(missing_ok=True)
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        self.tuner = _FORK.Process(target=_child, args=(run_tuner, self.setting, self.mark, theirs))
        self.tuner.start()
        if self.setting.storage is not None and (self.worker is None or not self.worker.is_alive()):
            self.worker = _FORK.Process(target=_joining, args=(self.setting, theirs))
            self.worker.start()
        os.close(theirs)

    @property
    def code(self) -> int | None:
        """The tuner's exit code, negative for a signal."""
        assert self.tuner is not None
        return self.tuner.exitcode

    def ended(self, limit_s: float) -> bool:
        """Whether the tuner ends within so long."""
        assert self.tuner is not None
        self.tuner.join(limit_s)
        return not self.tuner.is_alive()

    def engines(self) -> list[psutil.Process]:
        """The living processes of its slots."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def wait_gone(self, limit_s: float = 30.0) -> bool:
        """Whether all that its tuner started ends by itself."""
        deadline = time.monotonic() + limit_s
        while self.engines():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def end_worker(self) -> bool:
        """Whether its worker, if it has one, sees that the study has ended."""
        if self.worker is None:
            return True
        self.worker.join(60.0)
        return not self.worker.is_alive()

    def kill(self) -> None:
        """End whatever is left."""
        for process in (self.tuner, self.worker):
            if process is not None and process.is_alive():
                process.kill()
                process.join()
        for engine in self.engines():
            engine.kill()

    def stderr(self) -> str:
        """What tuner and worker said since the last start."""
        said = getattr(self, "_said", {})
        try:
            said[self._pipe] = said.get(self._pipe, "") + os.read(self._pipe, 1 << 16).decode()
        except BlockingIOError:
            pass
        self._said = said
        return said.get(self._pipe, "")

    def result(self) -> dict[str, Any]:
        """What it found."""
        found: dict[str, Any] = json.loads((self.setting.folder / "result.json").read_text())
        return found


def _child(job: Callable[[Setting], None], setting: Setting, mark: str, stderr: int) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ[MARK] = mark
    os.dup2(stderr, 2)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    sys.exit(plainly(job, setting))


def _joining(setting: Setting, stderr: int) -> None:
    """A worker that waits until the study is there, as one that a cluster starts again and again."""
    os.environ.pop(MARK, None)
    from tuner.errors import BadRequest
    from tuner.study import join_study

    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        try:
            if "job" in join_study(setting.place).user_attrs:
                break
        except BadRequest:
            pass
        time.sleep(0.5)
    _child(run_worker, setting, "", stderr)


def hurt(study: Study, fault: str, random_: random.Random) -> tuple[bool, Callable[[], None] | None]:
    """Do it: whether there was something left to hurt, and what to do when the tuner has ended."""
    tuner, worker, engines = study.tuner, study.worker, study.engines()
    assert tuner is not None and tuner.pid is not None
    if not tuner.is_alive() or ("engine" in fault and not engines):
        return False, None
    if "worker" in fault and (worker is None or not worker.is_alive()):
        return False, None
    match fault:
        case "storage locked" | "connections cut":
            holder = _FORK.Process(target=_lock if fault == "storage locked" else _cut, args=(study.setting,))
            holder.start()
            return True, holder.join
        case "disk full":
            # no file may grow from here on: what a quota does, and to the writer much what a full disk does
            resource.prlimit(tuner.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return True, None
    if "engine" in fault:
        random_.choice(engines).kill()
    if "kill worker" in fault:
        assert worker is not None
        worker.kill()
    if fault in ("kill tuner", "kill engine and tuner", "kill worker and tuner"):
        tuner.kill()
    if fault == "terminate worker":
        assert worker is not None
        worker.terminate()
    if fault == "terminate tuner":
        tuner.terminate()
    if fault.startswith("ctrl-c"):
        os.kill(tuner.pid, signal.SIGINT)
        if fault == "ctrl-c twice":
            time.sleep(0.05)
            if tuner.is_alive():
                os.kill(tuner.pid, signal.SIGINT)
    return True, None


def _lock(setting: Setting) -> None:
    database = setting.place.folder / "study.db"
    if not database.exists():
        return
    connection = sqlite3.connect(database, timeout=30.0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(LOCKED_S)
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        pass
    finally:
        connection.close()


def _cut(setting: Setting) -> None:
    """End every connection of this study, three times in a row."""
    import psycopg

    assert setting.storage is not None
    url = setting.storage.partition("?")[0]
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(3):
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                (setting.folder.name,),
            )
            time.sleep(0.2)
