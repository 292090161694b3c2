"""The course of one replay: who is sent when, what came back, and when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from tuner.replay.answer import Answer
from tuner.replay.call import Call
from tuner.replay.causal import TurnPacer
from tuner.replay.columns import Columns
from tuner.replay.heads import Heads
from tuner.replay.options import ClientOptions
from tuner.replay.pool import Connection, Pool, clock, connect_reason
from tuner.replay.prompts import Bodies
from tuner.replay.records import Status, Workload
from tuner.replay.running import tell_latency
from tuner.replay.server import BaseUrl
from tuner.traces.causal import turns_of

Progress = Callable[[int, int], None]

LEAD_S = 0.05
_EARLY_S = 0.0002
_TICK_S = 0.05
_PROGRESS_TICKS = 5
_LATENCY_TICKS = 20


class Watch(Protocol):
    """Told of every answer; says when the replay can end."""

    @property
    def needs_first(self) -> bool:
        """Whether first tokens matter while the replay runs."""
        ...

    def first(self, index: int, ttft_s: float) -> None:
        """A request got its first token."""

    def done(self, index: int, e2e_s: float, ok: bool, tpot_s: float = 0.0) -> None:
        """A request ended."""

    def certain(self, now_s: float) -> bool:
        """Whether nothing that comes can change the verdict."""
        ...


class Run:
    """The state of one replay, or of one process's share of it; times are seconds since its begin.

    `order` are the requests that are sent here, `share` their part of the load.
    """

    def __init__(
        self,
        workload: Workload,
        options: ClientOptions,
        *,
        watch: Watch | None = None,
        progress: Progress | None = None,
        order: Sequence[int] | None = None,
        share: float = 1.0,
    ) -> None:
        self.workload, self.options = workload, options
        self.columns = Columns(workload)
        self.order = range(len(workload.trace)) if order is None else order
        self.n = len(self.order)
        self.ended = 0
        self.watches_first = watch is not None and watch.needs_first
        self._watch, self._progress, self._share = watch, progress, share
        self._wanted = workload.trace.output_tokens.tolist()
        self._open_loop = workload.users is None
        self._next = 0
        self._pacer: TurnPacer | None = None

    @property
    def reserve(self) -> int:
        """Connections to keep open beyond those in use."""
        if not self._open_loop:
            return 1
        return int(min(64, max(4, 0.1 * self._share * self.workload.trace.rate_rps)))

    async def main(
        self,
        pool: Pool,
        url: BaseUrl,
        bodies: Bodies,
        begin: Callable[[], Awaitable[float]] | None = None,
    ) -> None:
        """Send everything and wait for the last answer, or for certainty.

        `begin` says when the replay begins, once the connections are warm; default: at once.
        """
        self._pool, self._bodies = pool, bodies
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._heads = Heads(url)
        self._loop.set_exception_handler(self._fault_in_callback)
        ticker: asyncio.Task[None] | None = None
        try:
            await pool.warm(self._warm_count())
            self._start = clock() + LEAD_S if begin is None else await begin()
            if self._open_loop and self.workload.causal:
                self._pacer = self._causal_pacer()
                self._pacer.begin()
            elif self._open_loop:
                bodies.prepare(self.order[0])
                self._arm()
            else:
                self._loop.call_later(LEAD_S, self._begin_users)
            ticker = self._loop.create_task(self._tick())
            ticker.add_done_callback(self._ticked)
            used_s, begun_s = time.thread_time(), clock()
            await self._finished
            self.columns.cpu_share = (time.thread_time() - used_s) / max(clock() - begun_s, 1e-9)
        finally:
            if self._pacer is not None:
                self._pacer.stop()
            if ticker is not None:
                ticker.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):  # _ticked has passed it on
                    await ticker
            for connection in tuple(pool.connections):
                connection.parse()
            await pool.close()

    def _warm_count(self) -> int:
        if self.options.warm_connections is not None:
            return self.options.warm_connections
        if self.workload.users is not None:
            return min(self.workload.users, self.n)
        return int(min(self.n, 256, 8 + 0.5 * self._share * min(self.workload.trace.rate_rps, 1e6)))

    def _fault_in_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback ends the replay; swallowed, it would leave it waiting for ever."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError) and not self._finished.done():
            self._finished.set_exception(error)

    # pacing

    def _arm(self) -> None:
        wait = self._start + self.columns.scheduled[self.order[self._next]] - clock()
        # whole milliseconds, rounded up: uvloop's timers would round, and then fire early
        self._loop.call_later(max(0.0, math.ceil(wait * 1000.0) / 1000.0), self._pace)

    def _pace(self) -> None:
        if self._finished.done():
            return
        scheduled, order, n = self.columns.scheduled, self.order, self.n
        while self._next < n and self._start + scheduled[order[self._next]] - clock() <= _EARLY_S:
            index = order[self._next]
            self._next += 1
            self._send(index)
        if self._next < n:
            self._bodies.prepare(order[self._next])
            self._arm()

    def _causal_pacer(self) -> TurnPacer:
        return TurnPacer(
            turns_of(self.workload.trace),
            self.order,
            self.columns.scheduled,
            now=lambda: clock() - self._start,
            send=self._send,
            prepare=self._bodies.prepare,
        )

    def _begin_users(self) -> None:
        for _ in range(min(self.workload.users or 1, self.n)):
            self._next_of_user()

    def _next_of_user(self) -> None:
        if self._next < self.n and not self._finished.done():
            index = self.order[self._next]
            self._next += 1
            self.columns.scheduled[index] = clock() - self._start
            self._send(index)
            if self._next < self.n:
                self._bodies.prepare(self.order[self._next])

    def _send(self, index: int) -> None:
        call = Call(self, index)
        # a handshake that may follow is the server's and the network's time, not the client's lag
        self.columns.sent[index] = clock() - self._start
        connection = self._pool.take()
        if connection is None:
            self.connect(call)
        else:
            self._transmit(call, connection)

    def connect(self, call: Call) -> None:
        """Send on a connection of its own."""
        self._pool.open(
            lambda connection: self._transmit(call, connection),
            lambda error: self.failed(call.index, Status.CONNECTION, self._connect_fault(error), call.answer),
        )

    def _transmit(self, call: Call, connection: Connection) -> None:
        index = call.index
        if self.columns.status[index] != Status.UNFINISHED or self._finished.done():
            self._pool.give(connection)
            return
        path, body = self._bodies.take(index)
        connection.send(call, self._heads.head(path, index, len(body)), body)

    def _connect_fault(self, error: OSError) -> str:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self.columns.fault = "the client ran out of file descriptors; raise ulimit -n"
        elif error.errno == errno.EADDRNOTAVAIL:
            self.columns.fault = "the client ran out of local ports; widen net.ipv4.ip_local_port_range"
        return connect_reason(error)

    # answers

    def began(self, index: int, now: float) -> None:
        """The first token of a request was read at `now`."""
        columns = self.columns
        columns.first[index] = now - self._start
        if self._watch is not None:
            self._watch.first(index, columns.first[index] - columns.scheduled[index])

    def answered(self, index: int, answer: Answer) -> None:
        """A response with status 200 was read to its end."""
        status = answer.judge(self._wanted[index], exact=self.options.exact_length)
        if status is not Status.OK:
            self.failed(index, status, answer.error, answer)
            return
        if answer.usage_tokens is None:
            self.columns.estimated = True
        self._end(index, Status.OK, answer)

    def failed(self, index: int, status: Status, why: str, answer: Answer) -> None:
        """A request ended without a full answer."""
        self.columns.error(why)
        self._end(index, status, answer)

    def _end(self, index: int, status: Status, answer: Answer) -> None:
        columns, start = self.columns, self._start
        if columns.status[index] != Status.UNFINISHED:
            return
        columns.status[index] = int(status)
        first, last = answer.first_s - start, answer.last_s - start
        columns.first[index], columns.last[index] = first, last
        columns.tokens[index], columns.first_tokens[index] = answer.tokens, answer.first_tokens
        if answer.prompt_tokens is not None:
            columns.prompt_tokens[index] = answer.prompt_tokens
        self.ended += 1
        if self._finished.done():
            return
        watch = self._watch
        if watch is not None:
            later = answer.tokens - answer.first_tokens
            tpot = (last - first) / later if later > 0 else 0.0
            ok = status is Status.OK
            scheduled = columns.scheduled[index]
            if ok:
                watch.first(index, first - scheduled)
            watch.done(index, last - scheduled, ok, tpot)
            if watch.certain(clock() - start):
                self._stop_now()
                return
        if self.ended == self.n:
            self._finished.set_result(None)
        elif self._pacer is not None:
            self._pacer.ended(index, last if status is Status.OK else clock() - start)
        elif not self._open_loop:
            # through the loop, so that a server that refuses everything does not recurse
            self._loop.call_soon(self._next_of_user)

    def _stop_now(self) -> None:
        self.columns.stopped = True
        self._finished.set_result(None)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_S)
            ticks += 1
            if self._finished.done():
                return
            if self._watch is not None and self._watch.certain(clock() - self._start):
                self._stop_now()
                return
            if ticks % _PROGRESS_TICKS == 0:
                self._look_at_the_quiet()
                self._pool.tidy()
                if self._progress is not None:
                    self._progress(self.ended, self.n)
            if ticks % _LATENCY_TICKS == 0:
                tell_latency(self._progress, self.columns)

    def _ticked(self, ticker: asyncio.Task[None]) -> None:
        """An error raised by the progress callback ends the replay: its caller wants out."""
        if not ticker.cancelled() and (error := ticker.exception()) and not self._finished.done():
            self._finished.set_exception(error)

    def _look_at_the_quiet(self) -> None:
        """Parse what a connection that has nothing more to say left unparsed, and end what stalls."""
        now = clock()
        for connection in tuple(self._pool.connections):
            call = connection.call
            if call is None or connection.seen > now - _PROGRESS_TICKS * _TICK_S:
                continue
            connection.parse()
            if (
                connection.call is call
                and isinstance(call, Call)
                and connection.seen < now - self.options.stall_s
            ):
                connection.abort()
                why = f"no byte for {self.options.stall_s:g} s"
                self.failed(call.index, Status.STALLED, why, call.answer)
