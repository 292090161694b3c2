"""The simulator as a predictor: what a configuration would carry, found with few replays in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tuner.engines.base import Judged, LaunchFailure, ServerFacts
from tuner.engines.simulated.engine import SimulatedEngine
from tuner.replay import Curtailment, Replay, Workload
from tuner.space import LaunchConfig
from tuner.spec import Slo
from tuner.traces.trace import Trace

Send = Callable[[Workload, Curtailment | None], Replay]
STEP = 1.05
"""Loads are tried on a grid of such steps from the trace's own."""
_STRIDE = 8
_REACH = 120
_GUARD_MARGIN = math.log(0.95)
_UNTOUCHED = 0.3
_EXACT = 0.02


class Loads(Protocol):
    """Loads made from one part of a trace; `start` is the trace's own, `floor` the lowest worth a replay."""

    start: float
    floor: float

    def judge(self, send: Send, load: float) -> Judged:
        """One replay at a load, judged."""
        ...


class SimulatedPredictor:
    """Predicts with a simulated engine.

    Args:
        engine: the simulator of the GPU, model and version.
        loads_of: makes the loads of a trace and an SLO; None stands for the job's own.
        exact: the engine that is predicted is that simulator itself.
    """

    def __init__(
        self, engine: SimulatedEngine, loads_of: Callable[[Trace | None, Slo | None], Loads], *, exact: bool
    ) -> None:
        self._engine = engine
        self._loads_of = loads_of
        self._exact = exact
        self._loads: dict[tuple[str, Slo | None], Loads] = {}
        self._known: dict[tuple[LaunchConfig, str, Slo | None], float] = {}
        self._lessons = 0

    def capacity_rps(
        self, config: LaunchConfig, *, trace: Trace | None = None, slo: Slo | None = None
    ) -> float:
        """See `Predictor`."""
        key = (trace.digest() if trace is not None else "", slo)
        known = self._known.get((config, *key))
        if known is None:
            if key not in self._loads:
                self._loads[key] = self._loads_of(trace, slo)
            known = self._known[config, *key] = self._capacity(config, self._loads[key])
        return known

    def spread(self, config: LaunchConfig) -> float:
        """See `Predictor`."""
        return _EXACT if self._exact else _UNTOUCHED / math.sqrt(1.0 + self._lessons)

    def learn(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> None:
        """See `Predictor`."""
        self.recall(self.lesson(config, facts, judgements))

    def lesson(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> Mapping[str, Any]:
        """See `Predictor`."""
        return {"config": dict(config), "kv_tokens": facts.kv_tokens}

    def recall(self, lesson: Mapping[str, Any]) -> None:
        """See `Predictor`."""
        self._lessons += 1

    def _capacity(self, config: LaunchConfig, loads: Loads) -> float:
        """Between the highest load that passes and the lowest that fails, by their margins."""
        try:
            server = self._engine.launch(config, Path())
        except LaunchFailure:
            return 0.0
        margins: dict[int, tuple[bool, float]] = {}

        def passes(step: int) -> bool:
            if step not in margins:
                judged = loads.judge(server.replay, loads.start * STEP**step)
                margins[step] = judged.passes, judged.margin
            return margins[step][0]

        lowest = math.ceil(math.log(loads.floor / loads.start) / math.log(STEP) - 1e-6)
        low, high, stride = -_REACH, _REACH, _STRIDE
        step = max(0, lowest)
        while True:
            if passes(step):
                low = step
                step = min(low + stride, _REACH)
            else:
                high = step
                step = max(high - stride, lowest)
            if step in margins or (low > -_REACH and high < _REACH):
                break
            stride *= 2
        if low == -_REACH:
            return 0.0
        while high - low > 1:
            middle = (low + high) // 2
            if passes(middle):
                low = middle
            else:
                high = middle
        above = margins[high][1] if high in margins else math.inf
        return float(loads.start * STEP ** (low + _share(margins[low][1], above)))


def _share(below: float, above: float) -> float:
    """Where between two neighbouring loads the P99 reaches the guarded limit."""
    if not math.isfinite(above) or above <= below:
        return 0.5
    return min(max((_GUARD_MARGIN - below) / (above - below), 0.0), 0.95)
