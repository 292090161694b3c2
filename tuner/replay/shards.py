"""A replay by several client processes: started, begun at one instant, watched, and their records joined.

They share the machine's monotonic clock, so that the times of all are seconds since one begin. Curtailment
stays exact: each process says up to when it has told everything, and the verdict is only asked for up to the
earliest of these times.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self, cast

from tuner.errors import EngineUnavailable
from tuner.replay.columns import Columns
from tuner.replay.pool import clock
from tuner.replay.run import LEAD_S, Progress, Watch
from tuner.replay.shard import Job

_PROGRESS_S = 0.25
_END_S = 5.0


class Shards:
    """The client processes of one replay. A context manager: leaving it ends them."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Pipe] = []

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self._start(job)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait_ready(self) -> None:
        """Wait until all have built their requests and opened their connections.

        Raises:
            EngineUnavailable: no connection, or a process is gone.
        """
        for pipe in self._pipes:
            self._receive(pipe)

    def replay(self, columns: Columns, watch: Watch | None, progress: Progress | None) -> None:
        """Begin, and fill `columns` with what they record.

        Raises:
            EngineUnavailable: a process is gone.
        """
        start = clock() + LEAD_S
        for pipe in self._pipes:
            pipe.send(start)
        told = dict.fromkeys(self._pipes, 0.0)
        ended = dict.fromkeys(self._pipes, 0)
        jobs = dict(zip(self._pipes, self._jobs, strict=True))
        planned = sum(len(job.indices) for job in self._jobs)
        shown_s = 0.0
        while jobs:
            for ready in wait(list(jobs), timeout=_PROGRESS_S):
                pipe = cast(Pipe, ready)
                kind, *message = self._receive(pipe)
                if kind == "done":
                    columns.join(jobs.pop(pipe).indices, message[0])
                    continue
                told[pipe], answers, ended[pipe] = message
                if watch is not None:
                    for index, ttft_s, e2e_s, ok, tpot_s in answers:
                        if ttft_s == ttft_s:
                            watch.first(index, ttft_s)
                        else:
                            watch.done(index, e2e_s, ok, tpot_s)
            if watch is not None and not columns.stopped and watch.certain(min(told.values())):
                columns.stopped = True
                self._tell_all("stop")
            if progress is not None and clock() - shown_s > _PROGRESS_S:
                shown_s = clock()
                progress(sum(ended.values()), planned)

    def _start(self, job: Job) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # paths of this process count there too; the API key comes with the environment, never on the line
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            argv = [sys.executable, "-m", "tuner.replay.shard", str(theirs.fileno())]
            process = subprocess.Popen(
                argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        self._processes.append(process)
        pipe = Pipe(ours.detach())
        self._pipes.append(pipe)
        pipe.send(job)

    def _receive(self, pipe: Pipe) -> Any:
        try:
            message = pipe.recv()
        except (EOFError, OSError) as error:
            raise EngineUnavailable(
                "a client process is gone",
                "is the machine out of memory? Offer less, or --client-processes 1",
            ) from error
        if message[0] == "failed":
            raise message[1]
        return message

    def _tell_all(self, message: Any) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(message)

    def _end(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # an end of file ends a process that still works
        deadline = time.monotonic() + _END_S
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
