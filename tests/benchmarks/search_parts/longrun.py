"""Whether an export keeps the SLO: not in one replay, whose P99 is a draw itself, but over a long run.

The long run is the traffic of the held-out window at the exported load, without measurement noise: 32 draws
of 600 requests each, every one from another place of the window and with thinning and shifts of its own, none
of them the finals' own draw. Each draw meets a warm server: a third as many requests go before those that
count. The P99 is that of all that count together, 19,200 requests at the least: over other seeds its standard
deviation is 1 to 7% on problems 1 to 6, which is at most 2% of the load; of eight draws it is up to 11%.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search_parts.engine import TrueEngine
from search_parts.problem import Problem
from search_parts.truth import REQUESTS
from tuner.engines.base import LaunchFailure
from tuner.measure.loadtest import SPAN_OF_SLO
from tuner.measure.percentile import nearest_rank
from tuner.replay import Workload
from tuner.space import LaunchConfig
from tuner.study import split
from tuner.traces import NestedLoads, Trace

DRAWS = 32
SEED = 730_417
WARM = 1 / 3
"""Requests that go before, as a share of those that count."""
DEFINITION = f"P99 of {DRAWS} draws of {REQUESTS} requests, seed {SEED}, {WARM:.3f} before each"
"""Changes with what decides whether an export breaks the SLO."""


class LongRun:
    """Weighs exports of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._engine = TrueEngine(problem.truth)
        held_out = split(problem.trace).finals
        requests, span_s = REQUESTS * (1.0 + WARM), SPAN_OF_SLO * problem.slo.largest_s() * (1.0 + WARM)
        self._loads = [
            NestedLoads(
                turned(held_out, (k + 0.5) / DRAWS),
                requests=math.ceil(requests),
                min_duration_s=span_s,
                seed=SEED + k,
            )
            for k in range(DRAWS)
        ]

    def draws(self, rps: float) -> Iterator[tuple[Trace, NDArray[np.intp]]]:
        """The traffic of each draw at a load, and its requests that count."""
        for loads in self._loads:
            trace = loads.at(rps)
            yield trace, np.arange(round(len(trace) * WARM / (1.0 + WARM)), len(trace))

    def share_of_slo(self, config: LaunchConfig, rps: float) -> float:
        """P99 / SLO, the largest over the metrics: above 1.0 the SLO is broken. Infinite where the
        configuration does not start or dies, or where more than 1% of the requests fail.
        """
        limits = self._problem.slo.limits()
        seen: dict[str, list[NDArray[np.float64]]] = {metric: [] for metric in limits}
        try:
            with self._engine.launch(config, Path()) as server:
                for trace, counted in self.draws(rps):
                    answered = server.replay(Workload(trace))
                    for metric, columns in seen.items():
                        columns.append(answered.metric_s(metric)[counted])
        except LaunchFailure:
            return math.inf
        return max(nearest_rank(np.concatenate(seen[m]), 0.99) / limit for m, limit in limits.items())


def turned(trace: Trace, share: float) -> Trace:
    """The trace from another place on: what came before that place comes after its end."""
    first, gap_s = round(share * len(trace)), trace.duration_s / (len(trace) - 1)
    before, after = trace.take(np.arange(first)), trace.take(np.arange(first, len(trace)))
    begins_s = float(after.arrival_s[0])
    arrival_s = [after.arrival_s - begins_s, before.arrival_s + trace.duration_s + gap_s - begins_s]
    block_offsets = [after.block_offsets, before.block_offsets[1:] + after.block_offsets[-1]]
    return replace(
        trace,
        arrival_s=np.concatenate(arrival_s),
        input_tokens=np.concatenate([after.input_tokens, before.input_tokens]),
        output_tokens=np.concatenate([after.output_tokens, before.output_tokens]),
        session=np.concatenate([after.session, before.session]),
        block_offsets=np.concatenate(block_offsets),
        block_ids=np.concatenate([after.block_ids, before.block_ids]),
        bodies=None,
    )
