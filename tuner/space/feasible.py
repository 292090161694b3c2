"""What share of a space can start at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tuner.space.config import LaunchConfig
from tuner.space.space import SearchSpace


def feasible_share(
    space: SearchSpace, check: Callable[[LaunchConfig], object | None], seed: int = 0, n: int = 2000
) -> float:
    """Share of `n` random points, the same for the same seed, to which `check` has nothing to object."""
    rng = np.random.default_rng(seed)
    good = 0
    for _ in range(n):
        point = {parameter.name: parameter.sample(rng) for parameter in space.parameters}
        good += check(space.config(point)) is None
    return good / n if n else 0.0
