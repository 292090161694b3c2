"""Watches a server during a replay: is it there, and does it still compute tokens?"""

from __future__ import annotations

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

_ASK_EVERY_S = 5.0
"""/metrics costs the API server some milliseconds of the time that is being measured."""
BUSY_FACTOR = 2.0
"""A server that burns CPU without computing a token may be compiling: it gets so many times the limit."""


class ReplayWatch:
    """A thread beside a replay; `failure` is set, and `on_failure` called once, when the server is lost.

    It is lost when its process ended, when /health says 503 (the engine died behind its API server), or when
    requests are in flight (the client knows; the server's gauges are stale while it is idle) and no token has
    been computed for the limit: a request larger than the KV cache waits for ever.
    """

    def __init__(
        self,
        watched: Watched,
        limits: Limits,
        in_flight: Callable[[], bool],
        on_failure: Callable[[], None],
    ) -> None:
        self.failure: LaunchFailure | None = None
        self._watched, self._limits = watched, limits
        self._in_flight, self._on_failure = in_flight, on_failure
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
        started = moved = asked = time.monotonic()
        computed = -1.0
        tail, still = LogTail(self._watched.log), Standstill(started, self._watched.activity)
        tail.lines()
        every_s = min(_ASK_EVERY_S, self._limits.replay_standstill_s / 4)
        while not self._ended.wait(self._limits.poll_s):
            now = time.monotonic()
            if (code := self._watched.poll()) is not None:
                self._fail(diagnose.exited(self._watched.log, code, now - started, serving=True))
                return
            if now - asked < every_s:
                continue
            asked = now
            still.see(now, spoke=bool(tail.lines()))
            if control.request(self._watched.port, "/health")[0] == 503:
                self._fail(diagnose.engine_dead(self._watched.log, now - started))
                return
            status, text = control.request(self._watched.port, "/metrics")
            read = metrics.parse(text)
            tokens = read.tokens if status == 200 else computed
            if tokens != computed or not self._in_flight() or (status != 200 and still.idle_s == 0.0):
                moved, computed = now, tokens
            self._judge(now - moved, still.idle_s, read.only_waiting, now - started)

    def _judge(self, stuck_s: float, idle_s: float, only_waiting: bool, seconds: float) -> None:
        limit_s = self._limits.replay_standstill_s
        hopeless = only_waiting or idle_s > limit_s / 2
        if stuck_s > limit_s * (1.0 if hopeless else BUSY_FACTOR):
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
