"""The simulator as a predictor: what a configuration would carry, by what launches have shown so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.engines.base import Judged, LaunchFailure, ServerFacts
from tuner.engines.simulated.calibration import Calibration, Course
from tuner.engines.simulated.course import course_of, rounded
from tuner.engines.simulated.engine import SimulatedEngine
from tuner.engines.simulated.hidden import Numbers
from tuner.engines.simulated.knobs import BOUND_BY, ELASTICITY, stretched
from tuner.engines.simulated.limit import Loads, highest_load
from tuner.engines.simulated.screen import Screen
from tuner.engines.simulated.server import SimulatedServer
from tuner.replay import Replay
from tuner.space import LaunchConfig
from tuner.spec import FlagValue, Slo
from tuner.traces.trace import Trace

Key = tuple[LaunchConfig, str, Slo | None]

_EXACT = 0.005
_MISFIT = 0.03
"""What a prediction is off by even where every coefficient is known: the form of the simulator."""
_MOST_REPLAYS = 3


class SimulatedPredictor:
    """Predicts with a simulated engine, calibrated by what it is taught.

    Args:
        engine: the simulator of the GPU, model and version; nobody else launches on it.
        loads_of: makes the loads of a trace and an SLO; None stands for the job's own.
        exact: the engine that is predicted is that simulator itself, so that there is nothing to calibrate.
    """

    def __init__(
        self, engine: SimulatedEngine, loads_of: Callable[[Trace | None, Slo | None], Loads], *, exact: bool
    ) -> None:
        self._engine = engine
        self._loads_of = loads_of
        self._exact = exact
        self._loads: dict[tuple[str, Slo | None], Loads] = {}
        self._known: dict[Key, float] = {}
        self._in_force: dict[LaunchConfig, Mapping[str, FlagValue]] = {}
        self._start: float | None = None
        self._taught: list[tuple[LaunchConfig, float]] = []
        self._calibration = Calibration(self._replay_taught, self._carry_taught)
        self._screen = Screen()

    def capacity_rps(
        self, config: LaunchConfig, *, trace: Trace | None = None, slo: Slo | None = None
    ) -> float:
        """See `Predictor`."""
        key = (config, trace.digest() if trace is not None else "", slo)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._capacity(config, trace, slo)
            if trace is None and slo is None:
                self._note(config, known)
        return known

    def spread(self, config: LaunchConfig) -> float:
        """See `Predictor`."""
        return float(self._spreads([config])[0])

    def screen(self, configs: Sequence[LaunchConfig]) -> list[tuple[float, float]]:
        """See `Predictor`."""
        effective = [self._effective(config) for config in configs]
        usual = self._screen.guess(effective)
        beyond, _ = self._calibration.beyond_of(effective)
        guesses = np.exp(usual - ELASTICITY * beyond).tolist()
        return list(zip(guesses, self._spreads(configs, effective).tolist(), strict=True))

    def outlook(self, configs: Sequence[LaunchConfig]) -> Numbers:
        """See `Predictor`."""
        if self._exact:
            return np.zeros((1, len(configs)))
        drawn = self._calibration.draws([self._effective(config) for config in configs])
        return np.asarray(-ELASTICITY * (drawn - drawn.mean(axis=0)))

    def learn(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> None:
        """See `Predictor`."""
        self.recall(self.lesson(config, facts, judgements))

    def lesson(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> Mapping[str, Any]:
        """See `Predictor`."""
        return {
            "config": dict(config),
            "kv_tokens": facts.kv_tokens,
            "weights_gib": facts.weights_gib,
            "replays": [
                {"load": load, "passes": judged.passes, **rounded(course_of(judged.replay))}
                for load, judged in judgements
            ],
        }

    def recall(self, lesson: Mapping[str, Any]) -> None:
        """See `Predictor`."""
        config = LaunchConfig.of(lesson["config"])
        passed = [replay["load"] for replay in lesson["replays"] if replay["passes"]]
        self._start = max([*passed, self._start or 0.0]) or None
        self._known.clear()
        self._in_force.clear()
        self._screen.forget()
        if self._exact:
            return
        self._engine.observe(config, lesson["kv_tokens"], lesson["weights_gib"])
        replays = _telling(lesson["replays"])
        self._taught.append((config, 0.0))
        failed = [replay["load"] for replay in lesson["replays"] if not replay["passes"]]
        bracket = max(passed, default=0.0), min(failed, default=math.inf)
        self._calibration.learn(self._effective(config), [(r["load"], r) for r in replays], bracket)

    def server(self, config: LaunchConfig) -> SimulatedServer:
        """A simulated server of the configuration, with what is known of this machine so far.

        Raises:
            LaunchFailure: arithmetic says that it cannot start.
        """
        return self._server(config)

    def _spreads(
        self, configs: Sequence[LaunchConfig], effective: Sequence[Mapping[str, FlagValue]] | None = None
    ) -> Numbers:
        if self._exact:
            return np.full(len(configs), _EXACT)
        effective = effective or [self._effective(config) for config in configs]
        _, beyond = self._calibration.beyond_of(effective)
        common = self._calibration.knobs_spread(BOUND_BY)
        return np.asarray(np.hypot(ELASTICITY * np.hypot(beyond, common), _MISFIT))

    def _effective(self, config: LaunchConfig) -> Mapping[str, FlagValue]:
        if config not in self._in_force:
            self._in_force[config] = self._engine.effective(config)
        return self._in_force[config]

    def _server(self, config: LaunchConfig, *, checked: bool = True) -> SimulatedServer:
        logs = self._calibration.knobs_of(self._effective(config)) if not self._exact else None
        return self._server_at(config, logs, checked=checked)

    def _server_at(self, config: LaunchConfig, logs: Numbers | None, *, checked: bool) -> SimulatedServer:
        base = self._engine.coefficients
        coefficients = stretched(base, logs.tolist()) if logs is not None else base
        return self._engine.server(config, coefficients, checked=checked)

    def _capacity(self, config: LaunchConfig, trace: Trace | None, slo: Slo | None) -> float:
        try:
            server = self._server(config)
        except LaunchFailure:
            return 0.0
        loads = self._loads_for(trace, slo)
        start = self._start if trace is None and self._start is not None else loads.start
        return highest_load(loads, lambda workload, _: server.replay(workload), start)

    def _loads_for(self, trace: Trace | None, slo: Slo | None) -> Loads:
        key = (trace.digest() if trace is not None else "", slo)
        if key not in self._loads:
            self._loads[key] = self._loads_of(trace, slo)
        return self._loads[key]

    def _replay_taught(self, launch: int, load: float, logs: Numbers) -> Course:
        server = self._server_at(self._taught[launch][0], logs, checked=False)
        kept: list[Replay] = []

        def send(workload: Any, _: object) -> Replay:
            kept.append(server.replay(workload))
            return kept[-1]

        self._loads_for(None, None).judge(send, load)
        return course_of(kept[-1])

    def _carry_taught(self, launch: int, logs: Numbers) -> float:
        server = self._server_at(self._taught[launch][0], logs, checked=False)
        loads = self._loads_for(None, None)
        return highest_load(loads, lambda workload, _: server.replay(workload), self._start or loads.start)

    def _note(self, config: LaunchConfig, capacity: float) -> None:
        """Let the screen know what was simulated, without what the configuration has beyond the knobs."""
        if capacity > 0.0:
            effective = self._effective(config)
            beyond, _ = self._calibration.beyond_of([effective])
            self._screen.note(effective, math.log(capacity) + ELASTICITY * float(beyond[0]))


def _telling(replays: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The replays to fit: those around the capacity, and the lowest load."""
    passed = sorted((r for r in replays if r["passes"]), key=lambda r: -r["load"])
    failed = sorted((r for r in replays if not r["passes"]), key=lambda r: r["load"])
    chosen = [*passed[:1], *failed[:1], *passed[-1:], *failed[1:2]]
    unique = {r["load"]: r for r in chosen}
    return [r for r in unique.values() if any(v is not None for v in r["ttft"])][:_MOST_REPLAYS]
