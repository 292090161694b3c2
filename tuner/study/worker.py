"""A worker: measures what the tuner of a study, on another host, hands out through the study's storage."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tuner.engines.base import Engine
from tuner.errors import BadRequest
from tuner.hardware import card_of
from tuner.space.config import LaunchConfig
from tuner.study.aside import aside
from tuner.study.crew import Task, measure
from tuner.study.heart import LOST_S, Heart
from tuner.study.job import Job
from tuner.study.learn import lesson_of
from tuner.study.load import Offer, make_offer
from tuner.study.owning import BEAT, OWNER
from tuner.study.records import Observer
from tuner.study.search import untrue
from tuner.study.storage import StudyPlace, make_folder, plain
from tuner.study.windows import split
from tuner.study.wire import DONE, TASK, WORKER, finding_to_json

if TYPE_CHECKING:
    from optuna.study import Study

POLL_S = 0.5
SAME = ("model_digest", "trace_digest", "vllm_version", "engine", "requests", "seed", "slo", "load")
"""What a worker's job has to have in common with the study's."""


@dataclass(slots=True)
class Bay:
    """One place of a worker: what it tells of itself, and what it measures on."""

    key: str
    engine: Engine
    cards: int
    busy: str = ""
    gone: bool = False

    def said(self) -> dict[str, Any]:
        """What the tuner reads."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cards": self.cards,
            "busy": self.busy,
            "gone": self.gone,
        }


def check_same(job: Job, study: Study) -> None:
    """Refuse to measure anything else than the study does.

    Raises:
        BadRequest: another GPU, model, trace, vLLM or SLO.
    """
    theirs, mine = study.user_attrs.get("job") or {}, plain(job.identity())
    differs = [key for key in SAME if key in theirs and theirs[key] != mine[key]]
    if card_of(str(theirs.get("gpu", ""))) != job.gpu.name:
        differs.insert(0, "gpu")
    if differs:
        raise BadRequest(
            f"study {study.study_name}: this worker has another {', '.join(differs)}"
            f" ({'; '.join(f'{key} {mine.get(key)}, study {theirs.get(key)}' for key in differs[:3])})",
            "a worker needs the study's kind of GPU, and its model and trace files (--model, --trace)",
        )


def work(
    job: Job,
    place: StudyPlace,
    study: Study,
    observer: Observer,
    *,
    parallel: int = 1,
    idle_s: float = 3600.0,
) -> int:
    """Measure until the study has ended, or no tuner has run for `idle_s`; how many tasks were done.

    With slots, so many of them work beside each other.
    """
    check_same(job, study)
    make_folder(job, place)
    offer = make_offer(split(job.trace, job.spec.load).search, job.spec)
    ended = threading.Event()
    counts: list[int] = []
    errors: list[BaseException] = []
    with ExitStack() as stack:
        bays = [stack.enter_context(_bay(job, study)) for _ in range(parallel)]

        def serve(bay: Bay) -> None:
            try:
                counts.append(_serve(job, place, study, observer, offer, bay, ended, idle_s))
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        if len(bays) == 1:
            return _serve(job, place, study, observer, offer, bays[0], ended, idle_s)
        threads = [threading.Thread(target=serve, args=(bay,), daemon=True) for bay in bays]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                ended.wait(POLL_S)
                time.sleep(POLL_S)
        except BaseException:
            ended.set()
            if job.slots is not None:
                job.slots.close()
            raise
    if errors:
        raise errors[0]
    return sum(counts)


@contextmanager
def _bay(job: Job, study: Study) -> Iterator[Bay]:
    engine = job.slots.take(1) if job.slots is not None else job.engine
    assert engine is not None
    bay = Bay(uuid.uuid4().hex[:12], engine, 1 if job.slots is not None else job.gpu.count)
    storage = study._storage
    with Heart(getattr(storage, "inner", storage), study._study_id, WORKER + bay.key, bay.said) as heart:
        try:
            yield bay
        finally:
            bay.gone = True
            with contextlib.suppress(Exception):  # the tuner will notice the silence
                heart.beat()


def _serve(
    job: Job,
    place: StudyPlace,
    study: Study,
    observer: Observer,
    offer: Offer,
    bay: Bay,
    ended: threading.Event,
    idle_s: float,
) -> int:
    done, last = 0, ""
    tuner_seen_s = time.monotonic()
    beat: Any = None
    while not ended.is_set():
        attrs = study.user_attrs
        if (now := (attrs.get(OWNER), attrs.get(BEAT))) != beat:
            beat, tuner_seen_s = now, time.monotonic()
        order = attrs.get(TASK + bay.key)
        if order is not None and order["id"] != last:
            bay.busy = last = order["id"]
            found = _do(job, place, observer, offer, bay, order)
            study.set_user_attr(DONE + bay.key, found)
            bay.busy = ""
            done += 1
            tuner_seen_s = time.monotonic()
            continue
        silent_s = time.monotonic() - tuner_seen_s
        if attrs.get("result") is not None and (attrs.get(OWNER) is None or silent_s > LOST_S):
            break
        if silent_s > idle_s:
            observer.note(f"no tuner has run study {study.study_name} for {idle_s:.0f} s")
            break
        time.sleep(POLL_S)
    return done


def _do(
    job: Job, place: StudyPlace, observer: Observer, offer: Offer, bay: Bay, order: Mapping[str, Any]
) -> dict[str, Any]:
    number, config = int(order["trial"]), LaunchConfig.of(order["config"])
    observer.trial_started(number, "worker", config)
    task = Task(None, config, place.trial_folder(number), float(order["start"]), bool(order["beat_start"]))
    run = measure(task, replace(job, engine=bay.engine), aside(observer, number), offer)
    lesson = lesson_of(job.predictor, run)
    return {"id": order["id"], **finding_to_json(run, task.spent, job.spec.slo, lesson, untrue(run))}
