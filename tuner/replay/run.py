"""The course of one replay: who is sent when, what came back, and when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from tuner.replay.answer import Answer, error_text
from tuner.replay.heads import Heads
from tuner.replay.http1 import ResponseReader
from tuner.replay.lag import lag_fault, lag_limit_s
from tuner.replay.options import ClientOptions
from tuner.replay.pool import Connection, Pool, clock, connect_reason
from tuner.replay.prompts import Bodies
from tuner.replay.records import Replay, Status, Workload
from tuner.replay.server import BaseUrl
from tuner.replay.stop import Curtailment, OverWatch

Progress = Callable[[int, int], None]

_LEAD_S = 0.05
_EARLY_S = 0.0002
_TICK_S = 0.05
_PROGRESS_TICKS = 5
_STALE_WITHIN_S = 2.0  # one round trip, and then this process has to get a CPU
_ERROR_KINDS = 40
_CPU_SHARE = 0.95


class _Call:
    """One request under way."""

    __slots__ = ("answer", "index", "retried", "run", "text")

    def __init__(self, run: Run, index: int) -> None:
        self.run, self.index = run, index
        self.answer = Answer()
        self.text: list[bytes] = []
        self.retried = False

    def body(self, reader: ResponseReader, data: bytes, now: float) -> None:
        if reader.status == 200 and reader.content_type.startswith(b"text/event-stream"):
            answer = self.answer
            before = answer.chunks
            answer.feed(data, now)
            if not before and answer.chunks:
                self.run.began(self.index, now)
        else:
            self.text.append(data)

    def complete(self, reader: ResponseReader, now: float) -> None:
        answer, status = self.answer, reader.status
        if status == 200:
            if self.text:
                answer.whole(b"".join(self.text), now)
            answer.close(now)
            self.run.answered(self.index, answer)
        else:
            kind = Status.REJECTED if 400 <= status < 500 and status != 429 else Status.HTTP_ERROR
            self.run.failed(self.index, kind, f"HTTP {status}: {_said(self.text)}", answer)

    def broken(self, connection: Connection, reason: str, now: float) -> None:
        at_once = now - connection.written < _STALE_WITHIN_S and not connection.reader.began
        if connection.pooled and at_once and not self.retried:
            # the server closed an idle connection while the request was on its way: it never saw it; a fault
            # of its own would show again on the fresh connection
            self.retried = True
            self.run.connect(self)
            return
        # an error event or a complete answer may lie in front of a cut
        kind = Status.STREAM_ERROR if self.answer.error else Status.CONNECTION
        self.run.failed(self.index, kind, self.answer.error or reason, self.answer)


class Run:
    """The state of one replay; times are seconds since its begin."""

    def __init__(
        self,
        workload: Workload,
        stop: Curtailment | None,
        options: ClientOptions,
        progress: Progress | None,
    ) -> None:
        trace = workload.trace
        n = len(trace)
        self.n, self.workload, self.options, self._progress = n, workload, options, progress
        self.open_loop = workload.users is None
        self.scheduled = (trace.arrival_s - trace.arrival_s[0]).tolist() if n else []
        if not self.open_loop:
            self.scheduled = [math.nan] * n
        self.sent = [math.nan] * n
        self.first = [math.nan] * n
        self.last = [math.nan] * n
        self.tokens = [0] * n
        self.first_tokens = [0] * n
        self.prompt_tokens = [-1] * n
        self.status = [int(Status.UNFINISHED)] * n
        self.wanted = trace.output_tokens.tolist()
        self.errors: Counter[str] = Counter()
        self.estimated = False
        self.stopped = False
        self.fault: str | None = None
        self.ended = 0
        self._cpu_share = 0.0
        self._stop = stop
        self._watch = (
            OverWatch(stop, n, np.asarray(self.scheduled) if self.open_loop else None) if stop else None
        )
        self._next = 0

    async def main(self, pool: Pool, url: BaseUrl, bodies: Bodies) -> None:
        """Send everything and wait for the last answer, or for certainty."""
        self._pool, self._bodies = pool, bodies
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._heads = Heads(url)
        self._loop.set_exception_handler(self._fault_in_callback)
        ticker: asyncio.Task[None] | None = None
        try:
            await pool.warm(self._warm_count())
            self._start = clock() + _LEAD_S
            bodies.prepare(0)
            if self.open_loop:
                self._arm()
            else:
                self._loop.call_later(_LEAD_S, self._begin_users)
            ticker = self._loop.create_task(self._tick())
            ticker.add_done_callback(self._ticked)
            used_s, begun_s = time.thread_time(), clock()
            await self._finished
            self._cpu_share = (time.thread_time() - used_s) / max(clock() - begun_s, 1e-9)
        finally:
            if ticker is not None:
                ticker.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):  # _ticked has passed it on
                    await ticker
            await pool.close()

    def _warm_count(self) -> int:
        if self.options.warm_connections is not None:
            return self.options.warm_connections
        if self.workload.users is not None:
            return min(self.workload.users, self.n)
        return int(min(self.n, 256, 8 + 0.5 * min(self.workload.trace.rate_rps, 1e6)))

    def _fault_in_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback ends the replay; swallowed, it would leave it waiting for ever."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError) and not self._finished.done():
            self._finished.set_exception(error)

    # pacing

    def _arm(self) -> None:
        wait = self._start + self.scheduled[self._next] - clock()
        # whole milliseconds, rounded up: uvloop's timers would round, and then fire early
        self._loop.call_later(max(0.0, math.ceil(wait * 1000.0) / 1000.0), self._pace)

    def _pace(self) -> None:
        if self._finished.done():
            return
        scheduled, n = self.scheduled, self.n
        while self._next < n and self._start + scheduled[self._next] - clock() <= _EARLY_S:
            index = self._next
            self._next += 1
            self._send(index)
        if self._next < n:
            self._bodies.prepare(self._next)
            self._arm()

    def _begin_users(self) -> None:
        for _ in range(min(self.workload.users or 1, self.n)):
            self._next_of_user()

    def _next_of_user(self) -> None:
        if self._next < self.n and not self._finished.done():
            index = self._next
            self._next += 1
            self.scheduled[index] = clock() - self._start
            self._send(index)
            self._bodies.prepare(self._next)

    def _send(self, index: int) -> None:
        call = _Call(self, index)
        # a handshake that may follow is the server's and the network's time, not the client's lag
        self.sent[index] = clock() - self._start
        connection = self._pool.take()
        if connection is None:
            self.connect(call)
        else:
            self._transmit(call, connection)

    def connect(self, call: _Call) -> None:
        """Send on a connection of its own."""
        self._pool.open(
            lambda connection: self._transmit(call, connection),
            lambda error: self.failed(call.index, Status.CONNECTION, self._connect_fault(error), call.answer),
        )

    def _transmit(self, call: _Call, connection: Connection) -> None:
        index = call.index
        if self.status[index] != Status.UNFINISHED or self._finished.done():
            self._pool.give(connection)
            return
        path, body = self._bodies.take(index)
        connection.send(call, self._heads.head(path, index, len(body)), body)

    def _connect_fault(self, error: OSError) -> str:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self.fault = "the client ran out of file descriptors; raise ulimit -n"
        elif error.errno == errno.EADDRNOTAVAIL:
            self.fault = "the client ran out of local ports; widen net.ipv4.ip_local_port_range"
        return connect_reason(error)

    # answers

    def began(self, index: int, now: float) -> None:
        """The first token of a request was read at `now`."""
        self.first[index] = now - self._start
        if self._watch is not None:
            self._watch.first(index, self.first[index] - self.scheduled[index])

    def answered(self, index: int, answer: Answer) -> None:
        """A response with status 200 was read to its end."""
        status = answer.judge(self.wanted[index], exact=self.options.exact_length)
        if status is not Status.OK:
            self.failed(index, status, answer.error, answer)
            return
        if answer.usage_tokens is None:
            self.estimated = True
        self._end(index, Status.OK, answer)

    def failed(self, index: int, status: Status, why: str, answer: Answer) -> None:
        """A request ended without a full answer."""
        if len(self.errors) >= _ERROR_KINDS and why not in self.errors:
            why = "other errors"
        self.errors[why] += 1
        self._end(index, status, answer)

    def _end(self, index: int, status: Status, answer: Answer) -> None:
        if self.status[index] != Status.UNFINISHED:
            return
        start = self._start
        self.status[index] = int(status)
        first, last = answer.first_s - start, answer.last_s - start
        self.first[index], self.last[index] = first, last
        self.tokens[index], self.first_tokens[index] = answer.tokens, answer.first_tokens
        if answer.prompt_tokens is not None:
            self.prompt_tokens[index] = answer.prompt_tokens
        self.ended += 1
        if self._finished.done():
            return
        watch = self._watch
        if watch is not None:
            later = answer.tokens - answer.first_tokens
            tpot = (last - first) / later if later > 0 else 0.0
            ok = status is Status.OK
            if ok:
                watch.first(index, first - self.scheduled[index])
            watch.done(index, last - self.scheduled[index], ok, tpot)
            if watch.certain(self._now_for_watch()):
                self._stop_now()
                return
        if self.ended == self.n:
            self._finished.set_result(None)
        elif not self.open_loop:
            # through the loop, so that a server that refuses everything does not recurse
            self._loop.call_soon(self._next_of_user)

    def _now_for_watch(self) -> float:
        return clock() - self._start

    def _stop_now(self) -> None:
        self.stopped = True
        self._finished.set_result(None)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_S)
            ticks += 1
            if self._finished.done():
                return
            if self._watch is not None and self._watch.certain(self._now_for_watch()):
                self._stop_now()
                return
            if ticks % _PROGRESS_TICKS == 0:
                self._stalled()
                self._pool.tidy()
                if self._progress is not None:
                    self._progress(self.ended, self.n)

    def _ticked(self, ticker: asyncio.Task[None]) -> None:
        """An error raised by the progress callback ends the replay: its caller wants out."""
        if not ticker.cancelled() and (error := ticker.exception()) and not self._finished.done():
            self._finished.set_exception(error)

    def _stalled(self) -> None:
        before = clock() - self.options.stall_s
        for connection in tuple(self._pool.connections):
            call = connection.call
            if isinstance(call, _Call) and connection.seen < before:
                connection.abort()
                self.failed(
                    call.index, Status.STALLED, f"no byte for {self.options.stall_s:g} s", call.answer
                )

    # the record

    def replay(
        self, engine_s: float, bodies: Bodies | None = None, counters: Mapping[str, float] | None = None
    ) -> Replay:
        """What was recorded."""
        trace = self.workload.trace
        if self._progress is not None and not self.stopped:
            self._progress(self.ended, self.n)
        record = Replay(
            scheduled_s=np.asarray(self.scheduled, dtype=np.float64),
            sent_s=np.asarray(self.sent, dtype=np.float64),
            first_s=np.asarray(self.first, dtype=np.float64),
            last_s=np.asarray(self.last, dtype=np.float64),
            input_tokens=trace.input_tokens,
            output_tokens=trace.output_tokens,
            tokens=np.asarray(self.tokens, dtype=np.int32),
            first_tokens=np.asarray(self.first_tokens, dtype=np.int32),
            status=np.asarray(self.status, dtype=np.int8),
            offered_rps=self.workload.offered_rps if self.n else 0.0,
            engine_s=engine_s,
            users=self.workload.users,
            stopped=self.stopped,
            tokens_estimated=self.estimated,
            invalid_reason=self._invalid(bodies),
            counters={**self._counters(), **(counters or {})},
            errors=dict(self.errors),
        )
        return record

    def _invalid(self, bodies: Bodies | None) -> str | None:
        if self.fault is not None:
            return self.fault
        if self.open_loop:
            lag = np.asarray(self.sent) - np.asarray(self.scheduled)
            fault = lag_fault(lag, lag_limit_s(self.options.slo_smallest_s, self._stop))
            if fault is not None:
                return fault
        if self._cpu_share > _CPU_SHARE:
            return f"the client was the bottleneck: it used {self._cpu_share:.0%} of a CPU"
        if bodies is not None and bodies.lengths_known:
            return self._length_fault(exact=bodies.lengths_exact)
        return None

    def _length_fault(self, *, exact: bool) -> str | None:
        """Prompts that the server counts otherwise than the trace make another workload."""
        counted = np.asarray(self.prompt_tokens)
        known = counted >= 0
        if not known.any():
            return None
        wanted = int(self.workload.trace.input_tokens[known].sum(dtype=np.int64))
        got = int(counted[known].sum())
        # a token a request for what a server puts in front, and for rounding to words
        allowed = (0.01 if exact else 0.1) * wanted + 2 * int(known.sum())
        if abs(got - wanted) <= allowed:
            return None
        return f"the server counted {got:,} prompt tokens where the trace has {wanted:,}"

    def _counters(self) -> dict[str, float]:
        counters = {"client_cpu_share": self._cpu_share}
        counted = [c for c in self.prompt_tokens if c >= 0]
        if counted:
            counters["usage_prompt_tokens"] = float(sum(counted))
        return counters


def _said(text: list[bytes]) -> str:
    raw = b"".join(text)
    try:
        return error_text(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return error_text(raw[:400].decode("utf-8", "replace"))
