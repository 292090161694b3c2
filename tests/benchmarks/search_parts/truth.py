"""What a configuration carries in truth: without noise, on the held-out traffic, to 1%."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from search_parts.engine import Hidden, TrueEngine, Truth
from search_parts.problem import Problem
from tuner.engines.base import LaunchFailure
from tuner.measure import Judgement
from tuner.measure.loadtest import LoadTest
from tuner.measure.verdict import judge
from tuner.replay import Curtailment, Workload
from tuner.space import LaunchConfig
from tuner.study import split

REQUESTS = 600
SEED = 40_961
"""Other loads than any study sees, of the traffic that the finals see."""
FINE = 1.01
_STRIDE = 16
_MOST = 24


class Scale:
    """Weighs configurations of one problem."""

    def __init__(self, problem: Problem, hidden: Hidden | None = None) -> None:
        self.problem = problem
        truth = problem.truth if hidden is None else Truth(problem.gpu, problem.shape, hidden)
        self._engine = TrueEngine(truth)
        self._slo = problem.slo
        part = split(problem.trace).finals
        self._test = LoadTest(part, problem.slo, requests=REQUESTS, seed=SEED)
        self._capacities: dict[str, float] = {}
        self.replays = 0

    def load(self, step: int) -> float:
        """The load of a step of the fine grid."""
        return float(self._test.loads.natural_rps) * FINE**step

    def keeps(self, config: LaunchConfig, rps: float) -> bool:
        """Whether a configuration keeps the SLO at a load; False where it does not start or dies."""
        try:
            with self._engine.launch(config, Path()) as server:
                judgement = self._judge(server, rps)
        except LaunchFailure:
            return False
        return judgement.margin <= 0.0

    def alone_s(self, config: LaunchConfig) -> float:
        """P99 in seconds at a load where nothing waits."""
        with self._engine.launch(config, Path()) as server:
            replay = server.replay(Workload(self._test.loads.at(self._test.loads.natural_rps / 20.0)))
        return float(np.quantile(replay.e2e_s(), 0.99))

    def running(self, config: LaunchConfig, rps: float) -> float:
        """Requests in the system at a load: Little's law."""
        with self._engine.launch(config, Path()) as server:
            replay = server.replay(Workload(self._test.loads.at(rps)))
        return rps * float(replay.e2e_s()[replay.ok].mean())

    def capacity(self, config: LaunchConfig, beat: float = 0.0) -> float:
        """The highest load within the SLO, 0 where it keeps it nowhere, does not start, or dies.

        With `beat` it is 0 where it does not carry 1% more than that; only loads above are looked at then, so
        it can be more than what is found from the trace's own rate on (where a max-model-len refuses just
        about 1% of the requests, it is a matter of the draw).
        """
        known = self._capacities.get(config.key())
        if known is not None:
            return known
        try:
            with self._engine.launch(config, Path()) as server:
                found = self._search(server, beat)
        except LaunchFailure:
            found = 0.0
        if found is None:
            return 0.0
        if not beat:
            self._capacities[config.key()] = found
        return found

    def _search(self, server: object, beat: float) -> float | None:
        passed: dict[int, bool] = {}

        def passes(step: int) -> bool:
            if step not in passed:
                judgement = self._judge(server, self.load(step))
                passed[step] = judgement.margin <= 0.0 and not judgement.unstable
            return passed[step]

        start = 0
        if beat > 0.0:
            start = math.floor(math.log(beat / self.load(0)) / math.log(FINE) + 1e-6) + 1
            if not passes(start):
                return None
        low: int | None = None
        high: int | None = None
        step = start
        for _ in range(_MOST):
            if passes(step):
                low, step = step, step + _STRIDE
            elif step >= start and passes(
                step + _STRIDE
            ):  # it was no queue, only traffic that looked like one
                low, step = step + _STRIDE, step + 2 * _STRIDE
            else:
                high, step = step, step - _STRIDE
            if low is not None and high is not None:
                break
        if low is None:
            return 0.0
        while high is not None and high - low > 1:
            middle = (low + high) // 2
            if passes(middle):
                low = middle
            else:
                high = middle
        return self.load(low)

    def _judge(self, server: object, rps: float) -> Judgement:
        self.replays += 1
        trace = self._test._trace_at(rps)
        stop = Curtailment.at(self._slo.limits(), len(trace))
        replay = server.replay(Workload(trace), stop)  # type: ignore[attr-defined]
        return judge(replay, self._slo)
