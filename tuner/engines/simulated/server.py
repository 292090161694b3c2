"""A simulated server: one configuration that is up, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from tuner.engines.base import FailureKind, LaunchFailure, Progress, ServerFacts
from tuner.engines.simulated.prefixes import no_prefixes, prefixes_of
from tuner.engines.simulated.scheduler import Simulation
from tuner.engines.simulated.setup import Setup
from tuner.engines.simulated.timeline import Timeline
from tuner.engines.simulated.watching import Watch
from tuner.replay import Curtailment, Replay, Status, Workload
from tuner.traces.causal import turns_of


class SimulatedServer:
    """Replays a workload from an empty server and a cold prefix cache, every time."""

    def __init__(
        self, setup: Setup, facts: ServerFacts, noise: Callable[[], Callable[[], float] | None]
    ) -> None:
        self._setup, self._facts, self._noise = setup, facts, noise
        self._stopped = False

    @property
    def facts(self) -> ServerFacts:
        """What the arithmetic says of the launch."""
        return self._facts

    def replay(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        """Simulate the workload; `engine_s` is virtual. The verdict under `stop` is that of the whole replay.

        Raises:
            LaunchFailure: the server was stopped.
        """
        if self._stopped:
            raise LaunchFailure(FailureKind.ENGINE_DEAD, "the simulated server was stopped")
        trace, limits, users = workload.trace, self._setup.limits, workload.users
        planned = len(trace)
        status = self._refusals(workload)
        served = np.flatnonzero(status == Status.UNFINISHED)
        part = trace if len(served) == planned else trace.take(served)
        inputs, outputs = part.input_tokens.tolist(), np.maximum(part.output_tokens, 1).tolist()
        watch = Watch(
            served.tolist(),
            outputs,
            planned,
            np.flatnonzero(status != Status.UNFINISHED).tolist(),
            stop=stop,
            scheduled_s=trace.arrival_s if users is None and not workload.causal else None,
            progress=progress,
        )
        timeline = Simulation(
            limits,
            self._setup.cost,
            prefixes_of(part, limits.block_size) if limits.prefix_caching else no_prefixes(len(part)),
            part.arrival_s.tolist(),
            inputs,
            outputs,
            users=users,
            turns=turns_of(part) if workload.causal and users is None else None,
            observer=watch if stop is not None or progress is not None else None,
            noise=self._noise(),
        ).run()
        if progress is not None:
            progress(planned, planned)
        return _record(workload, timeline, status, served, limits.prefix_caching)

    def _refusals(self, workload: Workload) -> np.ndarray:
        """UNFINISHED for what the server takes; what it refuses, and what could never end there, else."""
        trace, limits = workload.trace, self._setup.limits
        inputs = trace.input_tokens.astype(np.int64)
        total = inputs + np.maximum(trace.output_tokens, 1)
        blocks = -(-(total - 1) // limits.block_size)
        hangs = blocks > limits.usable_blocks
        if not limits.chunked_prefill:
            hangs |= total - 1 > limits.max_num_batched_tokens
        status = np.full(len(trace), Status.UNFINISHED, dtype=np.int8)
        status[hangs] = Status.STALLED
        status[total > limits.max_model_len] = Status.REJECTED
        return status

    def stop(self) -> None:
        """Stop it; nothing is left behind."""
        self._stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _record(
    workload: Workload, timeline: Timeline, status: np.ndarray, served: np.ndarray, caching: bool
) -> Replay:
    trace, planned = workload.trace, len(workload.trace)
    first, last = np.full(planned, math.nan), np.full(planned, math.nan)
    first[served], last[served] = timeline.first_s, timeline.last_s
    # what was still under way when a verdict was certain stays unfinished, whatever is known of its end
    done = served[~np.isnan(timeline.last_s)]
    status[done] = Status.OK
    scheduled = trace.arrival_s.copy()
    if workload.causal and workload.users is None:
        scheduled[served] = timeline.arrival_s
    if workload.users is not None:
        taken = np.full(len(served), math.nan)
        taken[: len(timeline.arrival_s)] = timeline.arrival_s
        # a refused request is taken, and done with, when its user takes the next one
        after = np.minimum(np.searchsorted(served, np.arange(planned)), max(len(served) - 1, 0))
        scheduled = taken[after] if len(served) else np.zeros(planned)
        scheduled = np.where(np.isnan(scheduled), timeline.end_s, scheduled)
    tokens = np.where(status == Status.OK, trace.output_tokens, 0).astype(np.int32)
    counters = {
        "preemptions": float(timeline.preemptions),
        "steps": float(timeline.steps),
        "busy_s": timeline.busy_s,
        "mean_running": timeline.running_s / timeline.end_s if timeline.end_s else 0.0,
        "prompt_tokens": float(trace.input_tokens[served][: timeline.admitted].sum()),
        "generation_tokens": float(tokens.sum()),
    }
    if caching:
        counters["prefix_query_tokens"] = counters["prompt_tokens"]
        counters["prefix_hit_tokens"] = float(timeline.hit_tokens)
    errors = {
        kind.name.lower(): int((status == kind).sum())
        for kind in (Status.REJECTED, Status.STALLED)
        if (status == kind).any()
    }
    return Replay(
        scheduled_s=scheduled,
        sent_s=scheduled.copy(),
        first_s=first,
        last_s=last,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        tokens=tokens,
        first_tokens=np.minimum(tokens, 1).astype(np.int32),
        status=status,
        offered_rps=workload.offered_rps,
        engine_s=timeline.end_s,
        users=workload.users,
        stopped=timeline.stopped,
        simulated=True,
        counters=counters,
        errors=errors,
    )
