"""Who runs trials: this process one at a time, or slots beside each other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tuner.engines.base import Engine, FailureKind, LaunchFailure
from tuner.space.config import LaunchConfig
from tuner.study.aside import aside
from tuner.study.cards import cards_of
from tuner.study.job import Job, Slots
from tuner.study.load import Offer
from tuner.study.records import Observer
from tuner.study.tell import Told
from tuner.study.trial import Bench, Run, Spending

if TYPE_CHECKING:
    from optuna.trial import Trial


@dataclass(slots=True, eq=False)
class Task:
    """One launch to be made: of a trial, or (`trial` None) of the check whether neighbours disturb."""

    trial: Trial | None
    config: LaunchConfig
    folder: Path
    start: float
    beat_start: bool = False
    spent: Spending = field(default_factory=Spending)

    @property
    def cards(self) -> int:
        """How many GPUs it takes."""
        return cards_of(self.config)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a task found. `told` comes with it where it was measured on another host."""

    task: Task
    run: Run
    told: Told | None = None
    untrue: int = 0
    """Replays on another host that proved nothing, because the client was the limit."""


class Crew(Protocol):
    """Runs tasks. All its methods are called by one thread, which alone speaks to the study's storage."""

    @property
    def running(self) -> list[Task]:
        """What was submitted and has not been handed out by `wait`."""
        ...

    @property
    def size(self) -> int:
        """How many tasks it runs at a time, at the most."""
        ...

    def fits(self, cards: int) -> bool:
        """Whether a task of so many GPUs can begin now."""
        ...

    def submit(self, task: Task) -> None:
        """Begin a task that fits."""
        ...

    def wait(self, limit_s: float | None = None) -> Finding | None:
        """The next finding; None past the limit, or where there may be room for more now."""
        ...

    def fewer(self) -> bool:
        """Run one task less at a time from now on; False where it is one already."""
        ...

    def close(self) -> None:
        """Stop whatever runs."""
        ...


class Alone:
    """One task at a time, in this process, on the job's own engine."""

    size = 1

    def __init__(self, job: Job, observer: Observer, offer: Offer) -> None:
        self._job, self._observer, self._offer = job, observer, offer
        self.running: list[Task] = []

    def fits(self, cards: int) -> bool:
        return not self.running

    def submit(self, task: Task) -> None:
        self.running.append(task)

    def wait(self, limit_s: float | None = None) -> Finding | None:
        (task,) = self.running
        run = measure(task, self._job, self._observer, self._offer)
        self.running.clear()
        return Finding(task, run)

    def fewer(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing runs but in `wait`."""


class Beside:
    """A thread a task, each on an engine of its own slot."""

    def __init__(self, job: Job, slots: Slots, size: int, observer: Observer, offer: Offer) -> None:
        self._job, self._slots, self.size = job, slots, size
        self._observer, self._offer = observer, offer
        self.running: list[Task] = []
        self._found: queue.Queue[Finding | BaseException] = queue.Queue()
        self._threads: list[threading.Thread] = []

    def fits(self, cards: int) -> bool:
        return len(self.running) < self.size and self._slots.free(cards)

    def submit(self, task: Task) -> None:
        engine = self._slots.take(task.cards)
        assert engine is not None
        self.running.append(task)
        thread = threading.Thread(target=self._run, args=(task, engine), daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self, limit_s: float | None = None) -> Finding | None:
        try:
            found = self._found.get(timeout=limit_s)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        self.running.remove(found.task)
        return found

    def fewer(self) -> bool:
        if self.size <= 1:
            return False
        self.size -= 1
        return True

    def close(self) -> None:
        self._slots.close()
        for thread in self._threads:
            thread.join()

    def _run(self, task: Task, engine: Engine) -> None:
        number = task.trial.number if task.trial is not None else None
        watched = aside(self._observer, number)
        try:
            run = measure(task, replace(self._job, engine=engine), watched, self._offer)
            found: Finding | BaseException = Finding(task, run)
        except BaseException as error:
            found = error
        finally:
            self._slots.give(engine)
        self._found.put(found)


def measure(task: Task, job: Job, observer: Observer, offer: Offer) -> Run:
    """Launch a task's configuration and find its capacity; what it costs is counted in the task."""
    bench = Bench(job, observer, task.spent)
    return bench.find_capacity(task.config, task.folder, offer, task.start, beat_start=task.beat_start)


def make_crew(job: Job, observer: Observer, offer: Offer, helped: Callable[[Crew], Crew]) -> Crew:
    """The crew that a job asks for; `helped` adds workers of other hosts."""
    if job.slots is None:
        return helped(Alone(job, observer, offer))
    return helped(Beside(job, job.slots, job.parallel, observer, offer))


def lost(failure: LaunchFailure | None) -> bool:
    """Whether the slot went, not the configuration: the next one is a new process, nothing to wait for."""
    return failure is not None and failure.kind is FailureKind.SLOT_LOST
