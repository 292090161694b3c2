"""The truth as an engine: launches and replays of a hidden step time, with noise and crashes of its own.

The scheduler is the event form of vLLM's (held to a token-by-token one in the tests); everything that takes
time is `TrueSteps`. Every launch draws its own noise: 3% on all step times, 5% on the latencies of each
replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from search_parts.effects import Effect
from search_parts.setting import Setting
from search_parts.steps import Rates, TrueSteps
from tuner.engines.base import FailureKind, LaunchFailure, Phase, Progress, ServerFacts
from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.prefixes import no_prefixes, prefixes_of
from tuner.engines.simulated.refusals import refuse
from tuner.engines.simulated.scheduler import Simulation
from tuner.engines.simulated.timeline import StepCost, Timeline
from tuner.engines.simulated.watching import Watch
from tuner.hardware import Gpu
from tuner.models import ModelShape, kv_bytes_per_token_per_card
from tuner.replay import Curtailment, Replay, Status, Workload
from tuner.space import LaunchConfig, Rules, flag_table, to_argv
from tuner.space.effective import AUTO, truth
from tuner.space.graphs import effective_capture_sizes
from tuner.space.memory import Correction, MemoryModel

VERSION = "0.21.0"
THROUGHPUT_NOISE = 0.03
P99_NOISE = 0.05
_COLD_S, _COMPILE_S, _WARM_S, _OOM_S = 85.0, 74.0, 51.0, 58.0


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is true of a machine and nobody told: rates, effects, memory that arithmetic does not see.

    A launch runs out of memory where what vLLM's own budget leaves free, as a share of the card's memory, is
    less than `outside` and `outside_batch` for every 16,384 batched tokens.
    """

    rates: Rates
    effects: tuple[Effect, ...]
    memory: Correction
    outside: float
    outside_batch: float

    def without(self, effect: Effect) -> Hidden:
        """The same without one effect."""
        return replace(self, effects=tuple(e for e in self.effects if e is not effect))


class Truth:
    """What a configuration is in truth: its scheduler limits and step times, or why it does not start."""

    def __init__(self, gpu: Gpu, shape: ModelShape, hidden: Hidden) -> None:
        self.gpu, self.shape, self.hidden = gpu, shape, hidden
        self._rules = Rules(gpu, shape, VERSION)
        self._rules.memory = MemoryModel(gpu, shape, VERSION, hidden.memory)
        self._table = flag_table(VERSION)

    @property
    def memory(self) -> MemoryModel:
        return self._rules.memory

    def start(self, config: LaunchConfig) -> tuple[Limits, TrueSteps, Setting]:
        """What runs.

        Raises:
            LaunchFailure: it does not start.
        """
        failure = refuse(self._rules, self._table, config)
        if failure is not None:
            raise failure
        values, plan = self.memory.resolve(config), self.memory.plan(config)
        batch = values.max_num_batched_tokens / 16384
        if self.hidden.outside + self.hidden.outside_batch * batch > 1.0 - values.utilization:
            raise LaunchFailure(
                FailureKind.OOM,
                "CUDA out of memory while the graphs were captured",
                mend="lower gpu-memory-utilization or max-num-batched-tokens",
                seconds=_OOM_S,
            )
        flags = {**self.memory.resolve.defaults, **config}
        length = values.max_model_len
        if length == AUTO:
            length = min(self.shape.max_model_len, plan.kv_tokens)
        graphs = effective_capture_sizes(values, VERSION)
        setting = Setting(
            seqs=values.max_num_seqs,
            batched=values.max_num_batched_tokens,
            block=values.block_size,
            length=length,
            utilization=values.utilization,
            prefixes=truth(flags.get("enable-prefix-caching"), True),
            overlapped=truth(flags.get("async-scheduling"), True),
            interval=max(int(str(flags.get("stream-interval") or 1)), 1),
            graphs=graphs[-1] if graphs else 0,
            tensor_parallel=values.tensor_parallel,
            longest=self.shape.max_model_len,
        )
        limits = Limits(
            max_num_seqs=setting.seqs,
            max_num_batched_tokens=setting.batched,
            block_size=setting.block,
            kv_blocks=plan.kv_blocks,
            max_model_len=length,
            prefix_caching=setting.prefixes,
            chunked_prefill=values.chunked_prefill,
            async_scheduling=setting.overlapped,
            reserve_full_sequence=True,
            host_blocks=self._host_blocks(config, setting),
        )
        return (
            limits,
            TrueSteps(self.gpu, self.shape, self.hidden.rates, setting, self.hidden.effects),
            setting,
        )

    def _host_blocks(self, config: LaunchConfig, setting: Setting) -> int:
        gib = config.get("swap-space") or 0
        a_token = kv_bytes_per_token_per_card(self.shape, setting.tensor_parallel) * setting.tensor_parallel
        return int(float(str(gib)) * 2**30 / (a_token * setting.block))


class _Slowed:
    """Step times of one launch: all of them off by the same factor."""

    def __init__(self, steps: StepCost, factor: float) -> None:
        self._steps, self._factor = steps, factor
        self.frontend_token_s = factor * steps.frontend_token_s
        self.frontend_crowd_s = factor * steps.frontend_crowd_s
        self.load_token_s = factor * steps.load_token_s

    def decode(self, decodes: int) -> tuple[float, float, float, float]:
        base, floor, fixed, slope = self._steps.decode(decodes)
        k = self._factor
        return k * base, k * floor, k * fixed, k * slope

    def mixed(self, *sums: int) -> float:
        return self._factor * self._steps.mixed(*sums)


class TrueServer:
    """One launch of a configuration."""

    def __init__(
        self,
        limits: Limits,
        steps: StepCost,
        setting: Setting,
        effects: Sequence[Effect],
        facts: ServerFacts,
        rng: np.random.Generator | None,
    ) -> None:
        self._limits, self._setting, self._effects = limits, setting, tuple(effects)
        self._steps: StepCost = steps
        self._facts, self._rng = facts, rng
        if rng is not None:
            self._steps = _Slowed(steps, math.exp(THROUGHPUT_NOISE * float(rng.standard_normal())))

    @property
    def facts(self) -> ServerFacts:
        return self._facts

    def replay(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        """Replay in virtual time, from an empty server."""
        rng = self._rng
        stretch = math.exp(P99_NOISE * float(rng.standard_normal())) if rng is not None else 1.0
        trace, limits, users = workload.trace, self._limits, workload.users
        status = _refused(workload, limits)
        served = np.flatnonzero(status == Status.UNFINISHED)
        part = trace if len(served) == len(trace) else trace.take(served)
        inputs, outputs = part.input_tokens.tolist(), np.maximum(part.output_tokens, 1).tolist()
        watch = None
        if stop is not None:
            seen = Curtailment(
                stop.e2e_s / stretch, stop.ttft_s / stretch, stop.tpot_s / stretch, stop.max_over
            )
            refused = np.flatnonzero(status != Status.UNFINISHED).tolist()
            scheduled = trace.arrival_s if users is None else None
            watch = Watch(
                served.tolist(),
                outputs,
                len(trace),
                refused,
                stop=seen,
                scheduled_s=scheduled,
                progress=None,
            )
        prefixes = prefixes_of(part, limits.block_size) if limits.prefix_caching else no_prefixes(len(part))
        timeline = Simulation(
            limits,
            self._steps,
            prefixes,
            part.arrival_s.tolist(),
            inputs,
            outputs,
            users=users,
            observer=watch,
        ).run()
        if any(effect.dies(self._setting, timeline.preemptions) for effect in self._effects):
            raise LaunchFailure(
                FailureKind.ENGINE_DEAD,
                "EngineCore encountered a fatal error: CUDA out of memory",
                mend="lower gpu-memory-utilization",
                seconds=timeline.end_s / 2.0,
            )
        if progress is not None:
            progress(len(trace), len(trace))
        return _record(workload, timeline, status, served, limits, stretch)

    def stop(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _refused(workload: Workload, limits: Limits) -> np.ndarray:
    trace = workload.trace
    total = trace.input_tokens.astype(np.int64) + np.maximum(trace.output_tokens, 1)
    status = np.full(len(trace), Status.UNFINISHED, dtype=np.int8)
    status[-(-(total - 1) // limits.block_size) > limits.usable_blocks] = Status.STALLED
    status[total > limits.max_model_len] = Status.REJECTED
    return status


def _record(
    workload: Workload,
    timeline: Timeline,
    status: np.ndarray,
    served: np.ndarray,
    limits: Limits,
    stretch: float,
) -> Replay:
    trace, planned = workload.trace, len(workload.trace)
    arrival = np.full(len(served), math.nan)
    arrival[: len(timeline.arrival_s)] = timeline.arrival_s
    first, last = np.full(planned, math.nan), np.full(planned, math.nan)
    first[served] = arrival + stretch * (np.array(timeline.first_s) - arrival)
    last[served] = arrival + stretch * (np.array(timeline.last_s) - arrival)
    status[served[~np.isnan(timeline.last_s)]] = Status.OK
    scheduled = trace.arrival_s.copy()
    if workload.users is not None:
        taken = np.minimum(np.searchsorted(served, np.arange(planned)), max(len(served) - 1, 0))
        scheduled = arrival[taken] if len(served) else np.zeros(planned)
        scheduled = np.where(np.isnan(scheduled), timeline.end_s, scheduled)
    tokens = np.where(status == Status.OK, trace.output_tokens, 0).astype(np.int32)
    prompt = float(trace.input_tokens[served][: timeline.admitted].sum())
    counters = {
        "preemptions": float(timeline.preemptions),
        "steps": float(timeline.steps),
        "step_tokens": prompt - timeline.hit_tokens + float(tokens.sum()),
        "prompt_tokens": prompt,
        "generation_tokens": float(tokens.sum()),
    }
    if limits.prefix_caching:
        counters |= {"prefix_query_tokens": prompt, "prefix_hit_tokens": float(timeline.hit_tokens)}
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
        engine_s=stretch * timeline.end_s,
        users=workload.users,
        stopped=timeline.stopped,
        counters=counters,
        errors={
            k.name.lower(): n for k in (Status.REJECTED, Status.STALLED) if (n := int((status == k).sum()))
        },
    )


class TrueEngine:
    """A machine: noisy, reproducibly from `seed` and the number of the launch; without noise for `seed` None.

    `crashes` lists what did not start or died, by kind of failure.
    """

    name = "vllm"
    vllm_version = VERSION

    def __init__(self, truth: Truth, seed: int | None = None) -> None:
        self.truth, self._seed = truth, seed
        self.launches = 0
        self._compiled: set[tuple[object, ...]] = set()

    @property
    def deterministic(self) -> bool:
        return self._seed is None

    def launch(self, config: LaunchConfig, folder: Path, phase: Phase | None = None) -> TrueServer:
        """Start a configuration.

        Raises:
            LaunchFailure: it does not start.
        """
        self.launches += 1
        rng = np.random.default_rng([self._seed, self.launches]) if self._seed is not None else None
        limits, steps, setting = self.truth.start(config)
        plan = self.truth.memory.plan(config)
        facts = ServerFacts(
            startup_s=self._startup_s(setting),
            kv_tokens=plan.kv_tokens,
            command=("vllm", "serve", self.truth.shape.name, *to_argv(config, VERSION)),
            weights_gib=plan.weights_gib,
            effective={
                **self.truth.memory.resolve.defaults,
                **config,
                "max-num-seqs": setting.seqs,
                "max-num-batched-tokens": setting.batched,
                "max-model-len": setting.length,
                "block-size": setting.block,
                "gpu-memory-utilization": setting.utilization,
            },
        )
        return TrueServer(limits, steps, setting, self.truth.hidden.effects, facts, rng)

    def _startup_s(self, setting: Setting) -> float:
        key = (setting.batched, setting.block, setting.length, setting.graphs)
        seconds = _WARM_S if key in self._compiled else _COMPILE_S if self._compiled else _COLD_S
        self._compiled.add(key)
        return seconds

    def startup_estimate_s(self) -> float:
        return _COMPILE_S

    def close(self) -> None:
        """Nothing is held."""
