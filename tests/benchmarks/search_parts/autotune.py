"""The search of vLLM's auto_tune.sh: lower the memory until the largest pair starts, then the grid.

The script's own lists (benchmarks/auto_tune/auto_tune.sh: 128 and 256 sequences, 512 to 4,096 tokens) come
first, in its order; where launches are left, the lists go on by doubling. It serves with the shortest
max-model-len that the trace allows and with prefix caching, and leaves all other flags to vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

SEQS, BATCHED = (128, 256), (512, 1024, 2048, 4096)
MORE_SEQS, MORE_BATCHED = (512, 1024), (8192, 16384)
_UTILIZATION, _SEQS, _BATCHED = "gpu-memory-utilization", "max-num-seqs", "max-num-batched-tokens"
_STEP, _TRIES = 0.01, 9
Point = dict[str, Any]


class AutoTune(BaseSampler):
    """Proposes the first point of the script's order that was not told yet."""

    def __init__(self, seed: int) -> None:
        self._rest = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(_told(study)[0].distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Point:
        told = _told(study)
        tried = {_key(t.params): t.constraints.get("crash", -1.0) > 0 for t in told}
        point: Point = dict(told[0].params)
        for point in points(told[0].params, search_space, tried):
            if _key(point) not in tried:
                return point
        return point

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._rest.sample_independent(study, trial, param_name, param_distribution)


def points(
    default: Point, space: dict[str, BaseDistribution], tried: dict[tuple[object, ...], bool]
) -> Iterator[Point]:
    """The script's points; `tried` says which crashed."""
    base = {**default}
    if "enable-prefix-caching" in space:
        base["enable-prefix-caching"] = True
    lengths = space.get("max-model-len")
    if isinstance(lengths, CategoricalDistribution):
        base["max-model-len"] = min(c for c in lengths.choices if isinstance(c, int))
    seqs = [n for n in (*SEQS, *MORE_SEQS) if _inside(space[_SEQS], n)]
    batched = [n for n in (*BATCHED, *MORE_BATCHED) if _inside(space[_BATCHED], n)]
    largest = {_SEQS: _last(seqs, SEQS), _BATCHED: _last(batched, BATCHED)}
    if _UTILIZATION in space:
        high: float = space[_UTILIZATION].high  # type: ignore[attr-defined]
        for k in range(_TRIES):
            base[_UTILIZATION] = round(high - k * _STEP, 10)
            first = {**base, **largest}
            yield first
            if not tried.get(_key(first), False):
                break
    for rows, columns in ((SEQS, BATCHED), (MORE_SEQS, BATCHED), (SEQS + MORE_SEQS, MORE_BATCHED)):
        for n in rows:
            for m in columns:
                if n in seqs and m in batched:
                    yield {**base, _SEQS: n, _BATCHED: m}


def _last(values: list[int], listed: tuple[int, ...]) -> int:
    own = [n for n in values if n in listed]
    return own[-1] if own else values[0]


def _inside(distribution: BaseDistribution, value: int) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    return bool(distribution.low <= value <= distribution.high)  # type: ignore[attr-defined]


def _told(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _key(params: Point) -> tuple[object, ...]:
    return tuple(sorted((name, repr(value)) for name, value in params.items()))
