"""The tuner's side of workers on other hosts: tasks and findings are attributes of the study.

The tuner writes `task:ID`, the worker `worker:ID` and `done:ID`; nothing has two writers, so nothing is lost
to a race. A worker whose sign of life stops is given up, and its trial is asked again.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.study.crew import Alone, Crew, Finding, Task
from tuner.study.heart import Pulse
from tuner.study.records import Observer
from tuner.study.storage import plain
from tuner.study.trial import Run
from tuner.study.wire import DONE, TASK, WORKER, finding_from_json

if TYPE_CHECKING:
    from optuna.study import Study

POLL_S = 0.5


@dataclass(slots=True)
class _Worker:
    key: str
    said: dict[str, Any]
    pulse: Pulse = field(default_factory=Pulse)
    task: Task | None = None
    order: str = ""

    def idle(self, cards: int) -> bool:
        """Whether it can take a task of so many GPUs now."""
        there = self.pulse.moved and not self.pulse.lost and not self.said.get("gone")
        return (
            there
            and self.task is None
            and self.said.get("busy") in ("", self.order)
            and self.said["cards"] >= cards
        )


class Helped:
    """A crew of this host, and the workers that have joined the study."""

    def __init__(self, own: Crew, study: Study, observer: Observer) -> None:
        self._own, self._study, self._observer = own, study, observer
        self._workers: dict[str, _Worker] = {}
        self._polled_s = 0.0
        self._poll()

    @property
    def running(self) -> list[Task]:
        """Here and elsewhere."""
        return [*self._own.running, *(w.task for w in self._workers.values() if w.task is not None)]

    @property
    def size(self) -> int:
        """Here and elsewhere."""
        working = sum(w.task is not None or w.idle(1) for w in self._workers.values())
        return self._own.size + working

    def fits(self, cards: int) -> bool:
        """Whether there is room here, or an idle worker."""
        return self._own.fits(cards) or self._idle(cards) is not None

    def submit(self, task: Task) -> None:
        """To a worker first where this process can do one thing at a time only, else here first."""
        worker = self._idle(task.cards) if task.trial is not None else None
        if worker is None or (not isinstance(self._own, Alone) and self._own.fits(task.cards)):
            self._own.submit(task)
            return
        assert task.trial is not None
        worker.task, worker.order = task, uuid.uuid4().hex
        order = {
            "id": worker.order,
            "trial": task.trial.number,
            "config": plain(dict(task.config)),
            "start": task.start,
            "beat_start": task.beat_start,
        }
        self._study.set_user_attr(TASK + worker.key, order)

    def wait(self, limit_s: float | None = None) -> Finding | None:
        """The next finding from anywhere; None when a worker has joined or left."""
        while True:
            before = {w.key for w in self._workers.values() if w.idle(1)}
            if time.monotonic() - self._polled_s >= POLL_S and (found := self._poll()) is not None:
                return found
            if {w.key for w in self._workers.values() if w.idle(1)} != before:
                return None
            if self._own.running:
                own = self._own.wait(POLL_S)
                if own is not None:
                    return own
            else:
                time.sleep(POLL_S)

    def fewer(self) -> bool:
        """One less on this host."""
        return self._own.fewer()

    def close(self) -> None:
        """Stop what runs here; workers elsewhere are told to drop what they do."""
        try:
            self._own.close()
        finally:
            for worker in self._workers.values():
                if worker.task is not None:
                    self._study.set_user_attr(TASK + worker.key, None)

    def _idle(self, cards: int) -> _Worker | None:
        return next((w for w in self._workers.values() if w.idle(cards)), None)

    def _poll(self) -> Finding | None:
        attrs = self._study.user_attrs
        self._polled_s = time.monotonic()
        for name, said in attrs.items():
            if name.startswith(WORKER):
                key = name.removeprefix(WORKER)
                worker = self._workers.setdefault(key, _Worker(key, said))
                before, worker.said = worker.idle(1) or worker.task is not None, said
                worker.pulse.look(said.get("beat"))
                if not before and worker.idle(1):
                    self._observer.note(f"worker {said['host']}/{key[:6]} has joined, {said['cards']} GPUs")
        for worker in self._workers.values():
            if worker.task is None:
                continue
            done = attrs.get(DONE + worker.key)
            if done is not None and done["id"] == worker.order:
                return self._found(worker, done)
            if worker.pulse.lost or worker.said.get("gone"):
                return self._lost(worker)
        return None

    def _found(self, worker: _Worker, done: dict[str, Any]) -> Finding:
        task, worker.task = worker.task, None
        assert task is not None
        run, told, spent = finding_from_json(task.config, done)
        task.spent.launches, task.spent.engine_s = spent.launches, spent.engine_s
        self._study.set_user_attr(TASK + worker.key, None)
        return Finding(task, run, told, int(done["untrue"]))

    def _lost(self, worker: _Worker) -> Finding:
        task, worker.task = worker.task, None
        assert task is not None
        self._study.set_user_attr(TASK + worker.key, None)
        why = f"the worker on {worker.said['host']} has gone"
        return Finding(task, Run(task.config, failure=LaunchFailure(FailureKind.SLOT_LOST, why)))
