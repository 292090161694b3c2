"""One client process of several: `python -m tuner.replay.shard FD` sends its share and reports over a pipe.

Messages to it: a Job, the begin on the machine's monotonic clock, "stop". Messages from it: ("ready",),
("news", time up to which everything is told, answers, requests ended), ("done", columns), ("failed", error).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import sys
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import EngineUnavailable, TuneError
from tuner.replay.options import ClientOptions
from tuner.replay.prompts import Bodies, TextScale
from tuner.replay.records import Workload
from tuner.replay.run import Run, Watch
from tuner.replay.send import send_all

NEWS_S = 0.05
Answers = list[tuple[int, float, float, bool, float]]
"""What a watch is told: index; TTFT, or NaN; E2E, or NaN where it goes on; whether it is answered; TPOT."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a client process is to send: the requests at `indices`, `share` of the load."""

    base_url: str
    model: str
    workload: Workload
    indices: NDArray[np.int64]
    options: ClientOptions
    seed: int
    chat: TextScale | None
    share: float
    needs_first: bool
    watched: bool

    @classmethod
    def of(
        cls,
        workload: Workload,
        indices: NDArray[np.int64],
        base_url: str,
        model: str,
        options: ClientOptions,
        seed: int,
        chat: TextScale | None,
        watch: Watch | None,
    ) -> Job:
        """The job of one process. It gets the whole trace, whose digest decides the prompts, but only its own
        recorded bodies.
        """
        trace = workload.trace
        if trace.bodies is not None:
            own = set(indices.tolist())
            kept = tuple(body if at in own else None for at, body in enumerate(trace.bodies))
            workload = replace(workload, trace=replace(trace, bodies=kept))
        share = len(indices) / len(trace)
        needs_first = watch is not None and watch.needs_first
        return cls(
            base_url, model, workload, indices, options, seed, chat, share, needs_first, watch is not None
        )


class _Reporter:
    """The watch of a shard: it passes on what happens, and ends when told."""

    def __init__(self, pipe: Pipe, job: Job) -> None:
        self.needs_first = job.needs_first
        self.ended = 0
        self._pipe, self._watched = pipe, job.watched
        self._answers: Answers = []
        self._sent_s = 0.0
        self._over = False

    def first(self, index: int, ttft_s: float) -> None:
        if self.needs_first:
            self._answers.append((index, ttft_s, float("nan"), True, 0.0))

    def done(self, index: int, e2e_s: float, ok: bool, tpot_s: float = 0.0) -> None:
        self.ended += 1
        if self._watched:
            self._answers.append((index, float("nan"), e2e_s, ok, tpot_s))

    def certain(self, now_s: float) -> bool:
        if now_s - self._sent_s >= NEWS_S:
            self._sent_s = now_s
            self.tell(now_s)
            if self._pipe.poll():
                self._pipe.recv()  # "stop"; an end of file means that nobody is there any more
                self._over = True
        return self._over

    def tell(self, now_s: float) -> None:
        """Send what was not told yet."""
        answers, self._answers = self._answers, []
        self._pipe.send(("news", now_s, answers, self.ended))


def work(pipe: Pipe) -> None:
    """Receive a job and do it."""
    job: Job = pipe.recv()
    bodies = Bodies(
        job.workload.trace, job.model, job.options, seed=job.seed, chat=job.chat, only=job.indices.tolist()
    )
    watch = _Reporter(pipe, job)
    run = Run(job.workload, job.options, watch=watch, order=job.indices.tolist(), share=job.share)

    async def begin() -> float:
        pipe.send(("ready",))
        start: Any = await asyncio.to_thread(pipe.recv)
        return float(start)

    send_all(job.base_url, run, bodies, begin)
    watch.tell(math.inf)
    pipe.send(("done", run.columns.part(job.indices)))


def main(arguments: list[str]) -> int:
    """The process: 0 where the job was done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides what ends
    pipe = Pipe(int(arguments[0]))
    try:
        work(pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 1
    except TuneError as error:
        with contextlib.suppress(OSError):
            pipe.send(("failed", error))
        return 1
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(
                ("failed", EngineUnavailable(f"a client process failed ({type(error).__name__}: {error})"))
            )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
