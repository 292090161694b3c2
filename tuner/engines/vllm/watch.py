"""Watches a server during a replay: is it there, and does it still compute tokens?"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm import control, diagnose, metrics
from tuner.engines.vllm.limits import Limits
from tuner.engines.vllm.log_tail import LogTail
from tuner.engines.vllm.ready import Watched
from tuner.engines.vllm.standstill import Standstill

_BUSY = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})?\s+(\S+)", re.MULTILINE)
_BUSY_CPU_FACTOR = 3.0
"""A server that burns CPU without computing a token may be compiling: it gets so many times the limit."""


class ReplayWatch:
    """A thread beside a replay; `failure` is set, and `on_failure` called once, when the server is lost.

    It is lost when its process ended, when /health says 503 (the engine died behind its API server), or when
    requests are in flight and no token has been computed for the limit (a request larger than the KV cache
    waits for ever).
    """

    def __init__(self, watched: Watched, limits: Limits, on_failure: Callable[[], None]) -> None:
        self.failure: LaunchFailure | None = None
        self._watched, self._limits, self._on_failure = watched, limits, on_failure
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        started = moved = time.monotonic()
        computed = -1.0
        tail, still = LogTail(self._watched.log), Standstill(started)
        tail.lines()
        while not self._ended.wait(max(self._limits.poll_s, min(1.0, self._limits.replay_standstill_s / 4))):
            now = time.monotonic()
            still.see(now, spoke=bool(tail.lines()), cpu_s=self._watched.cpu_s())
            if self._lost(now - started):
                return
            status, text = control.request(self._watched.port, "/metrics")
            if status == 200:
                totals = metrics.parse(text).totals
                tokens = sum(value for name, value in totals.items() if name.endswith("tokens"))
                busy = sum(float(value) for value in _BUSY.findall(text))
                if tokens != computed or not busy:
                    moved, computed = now, tokens
            elif still.idle_s == 0.0:
                moved = now
            self._judge(now - moved, still.idle_s, now - started)

    def _lost(self, seconds: float) -> bool:
        if (code := self._watched.poll()) is not None:
            self._fail(diagnose.exited(self._watched.log, code, seconds, serving=True))
        elif control.request(self._watched.port, "/health")[0] == 503:
            self._fail(diagnose.engine_dead(self._watched.log, seconds))
        return self.failure is not None

    def _judge(self, stuck_s: float, idle_s: float, seconds: float) -> None:
        limit_s = self._limits.replay_standstill_s
        if stuck_s > limit_s and (idle_s > limit_s / 2 or stuck_s > _BUSY_CPU_FACTOR * limit_s):
            self._fail(
                diagnose.stuck(
                    self._watched.log,
                    FailureKind.HUNG,
                    f"requests are waiting and no token was computed for {stuck_s:.0f} s",
                    "a request may be larger than the KV cache: lower max-model-len or raise "
                    "gpu-memory-utilization",
                    seconds,
                )
            )

    def _fail(self, failure: LaunchFailure) -> None:
        self.failure = failure
        self._ended.set()
        self._on_failure()
