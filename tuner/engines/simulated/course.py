"""A replay in few numbers: how latencies went over its course, comparable with a simulated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.replay import Replay, Status

BINS = 8
"""Parts of a replay, in the order of its requests."""
_COMPLETE = 0.98
_TTFT_FLOOR_S = 0.25
"""Added to times to first token before their logarithm: an idle server's few milliseconds weigh little."""
FLOORS = {"ttft": _TTFT_FLOOR_S, "tpot": 1e-4, "e2e": 1e-3}
_SPREADS = {"ttft": 0.24, "tpot": 0.16, "e2e": 0.16}

Numbers = NDArray[np.float64]


def course_of(replay: Replay) -> dict[str, list[float | None]]:
    """Mean TTFT, TPOT and E2E in seconds of each part; None where too few of a part's requests ended."""
    n = len(replay)
    part = np.minimum(np.arange(n) * BINS // max(n, 1), BINS - 1)
    failed = (replay.status != Status.OK) & (replay.status != Status.UNFINISHED)
    ok = replay.ok
    began = ~np.isnan(replay.first_s) & ~failed
    later = np.maximum(replay.tokens - replay.first_tokens, 0)
    decode_s = np.where(ok, replay.last_s - replay.first_s, 0.0)
    course: dict[str, list[float | None]] = {name: [] for name in FLOORS}
    for i in range(BINS):
        here = part == i
        served = int((here & ~failed).sum())
        started, ended = here & began, here & ok
        few = max(served * _COMPLETE, 1.0)
        ttft = ended_share = None
        if started.sum() >= few:
            ttft = float((replay.first_s - replay.scheduled_s)[started].mean())
        if ended.sum() >= few:
            ended_share = float((replay.last_s - replay.scheduled_s)[ended].mean())
        tokens = int(later[ended].sum())
        course["ttft"].append(ttft)
        course["e2e"].append(ended_share)
        course["tpot"].append(
            float(decode_s[ended].sum()) / tokens if tokens and ended_share is not None else None
        )
    return course


def rounded(course: Mapping[str, Sequence[float | None]]) -> dict[str, list[float | None]]:
    """The same with five significant digits."""
    return {
        name: [None if value is None else float(f"{value:.5g}") for value in values]
        for name, values in course.items()
    }


def vector(course: Mapping[str, Sequence[Any]]) -> Numbers:
    """The logarithms of a course in one row, NaN where it has none."""
    return np.concatenate(
        [
            np.log(np.array([np.nan if v is None else v for v in course[name]], dtype=float) + floor)
            for name, floor in FLOORS.items()
        ]
    )


def spreads() -> Numbers:
    """Standard deviations to allow each entry of `vector`, between a measurement and a simulation.

    Larger than each on its own would need: neighbouring parts err together.
    """
    return np.concatenate([np.full(BINS, _SPREADS[name]) for name in FLOORS])
