"""A vLLM server that is up."""

from __future__ import annotations

import time
from dataclasses import replace
from types import TracebackType
from typing import Self

from tuner.engines.base import LaunchFailure, Progress, ServerFacts
from tuner.engines.vllm import control, diagnose, metrics
from tuner.engines.vllm.in_flight import InFlight
from tuner.engines.vllm.limits import Limits
from tuner.engines.vllm.ready import Watched
from tuner.engines.vllm.running import Running
from tuner.engines.vllm.watch import ReplayWatch
from tuner.errors import TuneError
from tuner.replay import ClientOptions, Curtailment, Endpoint, Replay, Workload, replay_http
from tuner.replay.dialect import settle
from tuner.replay.running import SeesLatency
from tuner.replay.warmup import warm_up

RESET_LIMIT_S = 5.0
GONE_LIMIT_S = 10.0


class VllmServer:
    """One server of one configuration; `argv` is the command line that really ran."""

    def __init__(
        self, facts: ServerFacts, running: Running, watched: Watched, limits: Limits, options: ClientOptions
    ) -> None:
        self._facts = facts
        self._running, self._watched, self._limits, self._options = running, watched, limits, options
        self._replays = self._seed = 0
        self._since_s = time.monotonic()

    @property
    def facts(self) -> ServerFacts:
        """What it said at start-up."""
        return self._facts

    @property
    def argv(self) -> tuple[str, ...]:
        """The argument list that was launched, address and name included."""
        return self._running.command.argv

    @property
    def base_url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._watched.port}"

    @property
    def served_name(self) -> str:
        """The model's name for this trial."""
        return self._watched.name

    @property
    def pid(self) -> int:
        """The leader of its session."""
        return self._running.handle.pid

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed when it was stopped: memory or a port that did not come back."""
        return tuple(self._running.notes)

    def replay(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        """Offer the workload from a cold prefix cache; the first time after a warm-up of every length class.

        Every replay draws other prompts of the same lengths and prefixes, and the cache is emptied where the
        server allows it.

        Raises:
            LaunchFailure: the server died or hung; it is stopped then.
        """
        try:
            return self._replay(workload, stop, progress)
        except LaunchFailure as failure:
            if (blamed := self._running.blame(failure)) is not failure:
                raise blamed from failure
            raise

    def stop(self) -> None:
        """Stop it and wait until processes, port and GPU memory are back; safe to call twice."""
        self._running.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _replay(self, workload: Workload, stop: Curtailment | None, progress: Progress | None) -> Replay:
        warm_up_s = self._send(warm_up(workload.trace)).engine_s if not self._replays else 0.0
        self._replays += 1
        before = self._metrics()
        replay = self._send(workload, stop, progress)
        counters = {**replay.counters, **self._metrics().since(before), "warm_up_s": warm_up_s}
        return replace(replay, counters=counters)

    def _send(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        self._since_s = time.monotonic()
        self._check_alive()
        self._empty_cache()
        self._seed += 1
        flight = InFlight(workload)
        watch = ReplayWatch(self._watched, self._limits, flight, on_failure=self._running.stop)

        tell = _Tell(watch, flight, progress)
        try:
            with watch:
                if self._options.endpoint is Endpoint.AUTO:  # asked once, not before every replay
                    self._options = settle(self.base_url, self.served_name, self._options)
                replay = replay_http(
                    self.base_url,
                    self.served_name,
                    workload,
                    stop=stop,
                    progress=tell,
                    options=self._options,
                    seed=self._seed,
                )
        except BaseException as error:
            lost = watch.failure or (self._gone() if isinstance(error, TuneError) else None)
            self.stop()
            if lost is not None and error is not lost:
                raise lost from error
            raise
        if watch.failure is not None:
            raise watch.failure
        self._check_alive()
        return replay

    def _empty_cache(self) -> None:
        """Ask for it until it is done: it is refused while requests of the last replay are being aborted."""
        deadline = time.monotonic() + RESET_LIMIT_S
        while True:
            status, body = control.request(self._watched.port, "/reset_prefix_cache", method="POST")
            refused = (
                status not in (0, 200, 404, 405) or "false" in body
            )  # {"success": false} from newer servers
            if not refused or time.monotonic() > deadline:
                return
            time.sleep(0.1)

    def _check_alive(self) -> None:
        if failure := self._lost():
            self.stop()
            raise failure

    def _lost(self) -> LaunchFailure | None:
        seconds = time.monotonic() - self._since_s
        if (code := self._running.poll()) is not None:
            return diagnose.exited(self._watched.log, code, seconds, serving=True)
        if control.request(self._watched.port, "/health", timeout_s=30.0)[0] == 503:
            return diagnose.engine_dead(self._watched.log, seconds)
        return None

    def _gone(self) -> LaunchFailure | None:
        """Why the client could not reach it; a dying process closes its port before it is seen to be dead."""
        deadline = time.monotonic() + GONE_LIMIT_S
        while time.monotonic() < deadline:
            if failure := self._lost():
                return failure
            if control.request(self._watched.port, "/health")[0] == 200:
                return None  # it is well: the fault is the client's
            time.sleep(0.1)
        return diagnose.engine_dead(self._watched.log, time.monotonic() - self._since_s)

    def _metrics(self) -> metrics.Metrics:
        return metrics.parse(control.request(self._watched.port, "/metrics", timeout_s=30.0)[1])


class _Tell:
    """Progress on its way to who asked for it: a lost server ends the replay here."""

    def __init__(self, watch: ReplayWatch, flight: InFlight, progress: Progress | None) -> None:
        self._watch, self._flight, self._progress = watch, flight, progress

    def __call__(self, done: int, planned: int) -> None:
        if self._watch.failure is not None:
            raise self._watch.failure
        self._flight.ended(done)
        if self._progress is not None:
            self._progress(done, planned)

    def latency(self, p99_s: float) -> None:
        if isinstance(self._progress, SeesLatency):
            self._progress.latency(p99_s)
