"""Points of a search space: drawn at random, brought inside, compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Distributions = Mapping[str, "BaseDistribution"]


def draw(distributions: Distributions, rng: np.random.Generator) -> dict[str, Any]:
    """One point, uniform (or log-uniform) in every parameter."""
    return {name: _draw(distribution, rng) for name, distribution in distributions.items()}


def mutated(
    distributions: Distributions, point: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """A neighbour of a point: one or two parameters drawn anew, or moved a little where they are numbers."""
    changed = dict(point)
    names = list(distributions)
    for name in rng.permutation(len(names))[: 1 + int(rng.integers(2))].tolist():
        distribution = distributions[names[name]]
        changed[names[name]] = _nudged(distribution, point.get(names[name]), rng)
    return changed


_LEVELS = 9
_SHIFTS = (0.6, 0.8, 0.9, 1.1, 1.25, 1.6)


def levels(distribution: BaseDistribution, value: Any) -> list[Any]:
    """Other values of a parameter: all of a few, else some spread over its range and some near to `value`."""
    from optuna.distributions import CategoricalDistribution

    listed = _values(distribution, 2 * _LEVELS)
    if isinstance(distribution, CategoricalDistribution):
        return [other for other in distribution.choices if other != value]
    if listed is not None:
        return [other for other in (inside(distribution, v) for v in listed) if other != value]
    low, high = float(distribution.low), float(distribution.high)  # type: ignore[attr-defined]
    spread = np.geomspace if distribution.log else np.linspace  # type: ignore[attr-defined]
    wanted = [float(v) for v in spread(low, high, _LEVELS)]
    if distribution.log and _is_number(value):  # type: ignore[attr-defined]
        wanted += [value * shift for shift in _SHIFTS]
    elif _is_number(value):
        wanted += [value + (shift - 1.0) * (high - low) / 2.0 for shift in _SHIFTS]
    return [other for other in dict.fromkeys(inside(distribution, v) for v in wanted) if other != value]


def inside(distribution: BaseDistribution, value: float) -> Any:
    """The value of a distribution nearest to a number; for categories the nearest that is a number.

    None where no category is a number.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        numbers = [c for c in distribution.choices if _is_number(c)]
        return min(numbers, key=lambda c: abs(float(c) - value), default=None)  # type: ignore[arg-type]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    value = min(max(value, low), high)
    if step and not (isinstance(distribution, IntDistribution) and distribution.log):
        value = min(low + step * round((value - low) / step), low + step * math.floor((high - low) / step))
    return round(value) if isinstance(distribution, IntDistribution) else round(float(value), 10)


def top(distribution: BaseDistribution) -> float | None:
    """The largest number of a distribution; None where it has no numbers."""
    from optuna.distributions import CategoricalDistribution

    if isinstance(distribution, CategoricalDistribution):
        numbers = [float(c) for c in distribution.choices if _is_number(c)]  # type: ignore[arg-type]
        return max(numbers, default=None)
    return float(distribution.high)  # type: ignore[attr-defined]


def enumerate_all(distributions: Distributions, limit: int) -> Iterator[dict[str, Any]] | None:
    """Every point, where there are at most `limit`; None where there are more."""
    values: list[tuple[Any, ...]] = []
    size = 1
    for distribution in distributions.values():
        listed = _values(distribution, limit)
        if listed is None:
            return None
        values.append(listed)
        size *= len(listed)
        if size > limit:
            return None
    return (dict(zip(distributions, point, strict=True)) for point in itertools.product(*values))


def distance(distributions: Distributions, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Sum over the parameters of how far apart two points are, each as a share of its range."""
    return sum(_apart(d, one[name], other[name]) for name, d in distributions.items() if name in other)


def _draw(distribution: BaseDistribution, rng: np.random.Generator) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(rng.integers(len(distribution.choices)))]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high = float(distribution.low), float(distribution.high)
    if distribution.log:
        value = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        value = rng.uniform(low, high)
    return inside(distribution, value)


_NUDGE = 0.12
"""Standard deviation of a small move, as a share of the range."""


def _nudged(distribution: BaseDistribution, value: Any, rng: np.random.Generator) -> Any:
    from optuna.distributions import CategoricalDistribution

    if isinstance(distribution, CategoricalDistribution) or not _is_number(value) or rng.random() < 0.3:
        return _draw(distribution, rng)
    low, high = float(distribution.low), float(distribution.high)  # type: ignore[attr-defined]
    if distribution.log:  # type: ignore[attr-defined]
        moved = math.exp(math.log(value) + _NUDGE * rng.standard_normal() * math.log(high / low))
    else:
        moved = value + _NUDGE * rng.standard_normal() * (high - low)
    return inside(distribution, moved)


def _values(distribution: BaseDistribution, limit: int) -> tuple[Any, ...] | None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return tuple(distribution.choices)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is None or (high - low) / step >= limit:
        return (low,) if low == high else None
    count = math.floor((high - low) / step + 1e-9) + 1
    return tuple(low + step * i for i in range(count))


def _apart(distribution: BaseDistribution, one: Any, other: Any) -> float:
    from optuna.distributions import CategoricalDistribution

    if isinstance(distribution, CategoricalDistribution):
        return 0.0 if one == other else 1.0
    low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
    if distribution.log:  # type: ignore[attr-defined]
        low, high, one, other = (math.log(v) for v in (low, high, one, other))
    return abs(one - other) / (high - low) if high > low else 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
