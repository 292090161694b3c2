"""What to try before the sampler knows anything: sensible changes to the defaults, a simulator's picks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.spec import FlagValue
from tuner.study.baseline import Baseline
from tuner.study.job import Job
from tuner.study.points import Distributions, inside, top
from tuner.traces import Trace

COVERED = 0.995
"""A max-model-len that fits this share of the requests rejects fewer than 1%, so that it can still win."""
MEMORY = 0.95
"""As much of the GPU's memory as usually still starts."""
CACHED = frozenset(
    {
        "async-scheduling",
        "enable-prefix-caching",
        "gpu-memory-utilization",
        "kv-offloading-size",
        "scheduling-policy",
        "stream-interval",
        "swap-space",
    }
)
"""Flags whose change finds vLLM's compile cache filled; any other one pays for a compilation."""
LARGEST_GRAPH = 512

Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a suggestion is made from. `coverage` is the share of the trace to be served."""

    distributions: Distributions
    effective: Mapping[str, FlagValue]
    trace: Trace
    coverage: float

    def scaled(self, flag: str, factor: float) -> Point:
        """`flag` at `factor` times its value in force; nothing where that cannot be had."""
        value = self.effective.get(flag)
        if flag not in self.distributions or isinstance(value, bool) or not isinstance(value, int | float):
            return {}
        return self.at(flag, value * factor)

    def at(self, flag: str, value: float | None) -> Point:
        """`flag` at the value of its range nearest to `value`."""
        if flag not in self.distributions or value is None:
            return {}
        found = inside(self.distributions[flag], value)
        return {} if found is None else {flag: found}


def _shorter(ground: Ground) -> Point:
    """The shortest max-model-len that serves the share of the trace that has to be served."""
    flag = "max-model-len"
    if flag not in ground.distributions or not len(ground.trace):
        return {}
    total = np.sort(ground.trace.input_tokens.astype(np.int64) + ground.trace.output_tokens)
    needed = int(total[min(len(total) - 1, int(np.ceil(ground.coverage * len(total))) - 1)])
    value = inside(ground.distributions[flag], needed)
    if value is not None and value < needed:
        from optuna.distributions import CategoricalDistribution

        distribution = ground.distributions[flag]
        if isinstance(distribution, CategoricalDistribution):
            enough = [c for c in distribution.choices if isinstance(c, int) and c >= needed]
            value = min(enough, default=value)
        else:
            value = inside(distribution, needed + (getattr(distribution, "step", None) or 1))
    return {} if value is None else {flag: value}


def _memory(ground: Ground) -> Point:
    flag = "gpu-memory-utilization"
    highest = top(ground.distributions[flag]) if flag in ground.distributions else None
    return ground.at(flag, min(highest, MEMORY)) if highest else {}


def _batches(factor: float) -> Callable[[Ground], Point]:
    return lambda ground: ground.scaled("max-num-batched-tokens", factor)


def _seqs(factor: float) -> Callable[[Ground], Point]:
    return lambda ground: ground.scaled("max-num-seqs", factor)


def _all_of(*parts: Callable[[Ground], Point]) -> Callable[[Ground], Point]:
    def together(ground: Ground) -> Point:
        point: Point = {}
        for part in parts:
            point |= part(ground)
        return point

    return together


SUGGESTIONS: dict[str, Callable[[Ground], Point]] = {
    "room for more": _all_of(_shorter, _seqs(2.0), _batches(2.0)),
    "few at once": _all_of(_shorter, _seqs(0.25), _batches(2.0)),
    "larger steps": _all_of(_shorter, _batches(4.0)),
    "all the memory": _all_of(_memory, _shorter, _seqs(2.0), _batches(2.0)),
    "very few at once": _all_of(_shorter, _seqs(0.125), _batches(2.0)),
    "many at once": _all_of(_shorter, _seqs(4.0), _batches(2.0)),
}
"""Changes to the defaults by name, in the order in which they are tried."""


def suggested(job: Job, baseline: Baseline, trace: Trace) -> list[Point]:
    """The suggestions as points of the space, as plain JSON values, whether or not they can start."""
    distributions = baseline.space.distributions()
    coverage = min(job.spec.coverage or 1.0, COVERED)
    ground = Ground(distributions, baseline.effective, trace, coverage)
    return [{**baseline.params, **suggest(ground)} for suggest in SUGGESTIONS.values()]


def make_seeds(job: Job, baseline: Baseline, trace: Trace) -> list[Point]:
    """Points to try first where no predictor guides: suggestions that the rules allow, nothing twice."""
    points: list[Point] = []
    keys = {baseline.space.config(baseline.params).key()}
    for point in suggested(job, baseline, trace):
        config = baseline.space.config(point)
        if config.key() not in keys and job.rules.check(config) is None:
            keys.add(config.key())
            points.append(point)
    return points if job.engine.deterministic else clustered(points, baseline.params)


def clustered(points: list[Point], begin: Mapping[str, Any]) -> list[Point]:
    """The points with those together that share a compilation, first those that share it with `begin`.

    Groups, and points within one, keep the order in which they came.
    """
    groups: dict[tuple[Any, ...], list[Point]] = {compiled(begin): []}
    for point in points:
        groups.setdefault(compiled(point), []).append(point)
    return [point for group in groups.values() for point in group]


def compiled(point: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a point enters the key of vLLM's compile cache; max-num-seqs by the graph sizes it gives."""
    seqs = point.get("max-num-seqs")
    graphs = min(2 * seqs, LARGEST_GRAPH) if isinstance(seqs, int) else None
    rest = sorted((k, repr(v)) for k, v in point.items() if k not in CACHED and k != "max-num-seqs")
    return (graphs, *rest)
