"""A toy job in slots that are real processes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from toy import ToyEngine, ToyServer, make_job

from tuner.engines.base import Engine
from tuner.hardware import Platform
from tuner.slots import Card, PacedEngine, Pool, shares_of
from tuner.study import Job


class LaggingEngine(ToyEngine):
    """Its client cannot keep up during the first replays of a process."""

    def launch(self, config: Any, folder: Path, phase: Any = None) -> ToyServer:
        server = super().launch(config, folder, phase)
        if len(self.launched) == 1:
            replay = server.replay
            server.replay = lambda *args: replace(  # type: ignore[method-assign]
                replay(*args), invalid_reason="the client sent late"
            )
        return server


def paced(scale: float) -> Engine:
    """A toy that takes its time."""
    return PacedEngine(ToyEngine(), scale)


def slow() -> Engine:
    """A toy that starts its servers in half a second."""
    return ToyEngine(before_launch=lambda _: time.sleep(0.5))


def job_of(slots: int, factory: Callable[[], Engine] = ToyEngine, **options: Any) -> Job:
    """A toy job with so many slots."""
    job = make_job(**options)
    pool = Pool.of_processes(shares_of([Card("")] * slots), job.engine, factory, Platform.CPU)
    return replace(job, slots=pool, parallel=slots)


crawling = functools.partial(paced, 0.002)
