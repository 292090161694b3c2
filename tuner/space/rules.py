"""Refusals by arithmetic: configurations that cannot start, or can never win, cost no launch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.hardware import Gpu
from tuner.models import ModelShape
from tuner.space.backends import backends
from tuner.space.checks import CHECKS, Case, Place
from tuner.space.config import LaunchConfig
from tuner.space.fit import check_feasible
from tuner.space.memory import MemoryModel, MemoryPlan
from tuner.space.refusal import FlagBound, Learned, Refusal
from tuner.space.versions import at_least
from tuner.spec import FlagValue
from tuner.traces.trace import Trace

__all__ = ["FlagBound", "Refusal", "Rules", "check_feasible"]

_DEFAULT_COVERAGE = 0.99
"""A P99 with failures as infinity can never pass where more than 1% of the requests are rejected."""
_OF_MEMORY = ("max-model-len", "gpu-memory-utilization")


def shortest_length(trace: Trace | None, coverage: float, model_length: int) -> int:
    """The smallest max-model-len that covers this share of the trace, at most the model's own length: a
    longer one cannot be had, so that one is never refused for the trace's sake.
    """
    if trace is None or not len(trace):
        return 1
    totals = np.sort(trace.input_tokens.astype(np.int64) + trace.output_tokens)
    # the share that fits is k / n at the k-th shortest; float error must not ask for one request more
    index = max(0, int(np.ceil(round(coverage * len(totals), 9))) - 1)
    return min(int(totals[min(index, len(totals) - 1)]), model_length)


class Rules:
    """Every rule for one GPU, model, version and trace; asked before each launch.

    `memory` is the model behind the memory rules: `observe` corrects it from a launch's log.
    """

    def __init__(
        self,
        gpu: Gpu,
        shape: ModelShape,
        version: str,
        trace: Trace | None = None,
        coverage: float | None = None,
    ) -> None:
        share = _DEFAULT_COVERAGE if coverage is None else coverage
        self.memory = MemoryModel(gpu, shape, version)
        self._place = Place(
            gpu,
            shape,
            backends(gpu, shape, version),
            literal_block_sizes=not at_least(version, "0.18"),
            null_block=at_least(version, "0.32"),
            shortest=shortest_length(trace, share, shape.max_model_len),
            coverage=share,
        )
        self._learned = Learned()

    @property
    def learned(self) -> tuple[FlagBound, ...]:
        """The bounds that logs taught so far."""
        return self._learned.bounds

    def check(self, config: Mapping[str, FlagValue]) -> Refusal | None:
        """Why this configuration is not worth a launch; None where nothing speaks against it."""
        values = self.memory.resolve(config)
        case = Case(self._place, values, self.memory.plan_effective(values))
        for check in CHECKS.values():
            refusal = check(case)
            if refusal is not None:
                return refusal
        return self._check_learned(config, case.plan) if self._learned.bounds else None

    def _check_learned(self, config: Mapping[str, FlagValue], plan: MemoryPlan) -> Refusal | None:
        flags = dict(config.items_) if isinstance(config, LaunchConfig) else dict(config)
        broken = self._learned.broken_by({**self.memory.resolve.defaults, **flags}, plan.kv_tokens)
        if broken is None:
            return None
        limits = [f"at least {broken.min:g}"] if broken.min is not None else []
        limits += [f"at most {broken.max:g}"] if broken.max is not None else []
        because = f" ({broken.reason})" if broken.reason else ""
        return Refusal(
            "learned",
            f"{broken.flag} must be {' and '.join(limits)}, as a launch showed{because}",
            broken,
            broken.flag,
        )

    def learn(
        self,
        flag: str,
        min: float | None = None,
        max: float | None = None,
        reason: str = "",
        *,
        config: Mapping[str, FlagValue] | None = None,
    ) -> None:
        """Keep a bound that a log taught for the rest of the study.

        A bound that depends on memory (max-model-len, gpu-memory-utilization) holds only for configurations
        with no more KV cache than the one that taught it, where that one is given as `config`.
        """
        depends = config is not None and flag in _OF_MEMORY
        tokens = self.memory.plan(config).kv_tokens if depends and config is not None else None
        self._learned.add(FlagBound(flag, min, max, reason, tokens))

    def observe(
        self,
        config: Mapping[str, FlagValue],
        *,
        kv_gib: float | None = None,
        kv_tokens: int | None = None,
        weights_gib: float | None = None,
    ) -> None:
        """Correct the memory arithmetic by what a launch of `config` logged."""
        self.memory = self.memory.calibrated(
            config, kv_gib=kv_gib, kv_tokens=kv_tokens, weights_gib=weights_gib
        )
