"""The guide finds what flags hide from its simulator, and proposes the same after an interruption."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from toy import DEFAULTS, ToyEngine, Watcher, make_job, truth_rps

from tuner.engines.base import Judged, ServerFacts
from tuner.engines.simulated.hidden import Beliefs
from tuner.space.config import LaunchConfig
from tuner.study import StudyPlace, tune

_OVER = 0.05
TRIALS = 4


def known_rps(flags: Mapping[str, Any]) -> float:
    """What is known of the toy: the cache is worth 3%."""
    return truth_rps({**flags, "enable-prefix-caching": True}) * (
        1.0 if flags["enable-prefix-caching"] else 0.97
    )


class Learning:
    """Knows that formula but not what its flags hide, which it learns from capacities alone."""

    def __init__(self) -> None:
        self._beliefs = Beliefs(DEFAULTS)
        self._seen: list[tuple[LaunchConfig, float]] = []

    def capacity_rps(self, config: LaunchConfig, **_: Any) -> float:
        return self.screen([config])[0][0]

    def spread(self, config: LaunchConfig) -> float:
        return self.screen([config])[0][1]

    def screen(self, configs: Sequence[LaunchConfig]) -> list[tuple[float, float]]:
        drawn = self._draws(configs)
        scale = math.exp(self._seen[0][1]) if self._seen else 1.0
        usual = scale * np.array([known_rps({**DEFAULTS, **config}) for config in configs])
        rps, spread = usual * np.exp(-drawn.mean(axis=0)), np.hypot(_OVER, drawn.std(axis=0))
        return list(zip(rps.tolist(), spread.tolist(), strict=True))

    def outlook(self, configs: Sequence[LaunchConfig]) -> np.ndarray:
        drawn = self._draws(configs)
        return drawn.mean(axis=0) - drawn

    def learn(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> None:
        self.recall(self.lesson(config, facts, judgements))

    def lesson(
        self, config: LaunchConfig, facts: ServerFacts, judgements: Sequence[tuple[float, Judged]]
    ) -> Mapping[str, Any]:
        passed = [load for load, judged in judgements if judged.passes]
        failed = [load for load, judged in judgements if not judged.passes]
        carried = math.sqrt(max(passed) * min(failed)) if passed and failed else None
        return {"config": dict(config), "carried": carried}

    def recall(self, lesson: Mapping[str, Any]) -> None:
        if lesson["carried"] is None:
            return
        config = LaunchConfig.of(lesson["config"])
        self._seen.append((config, math.log(lesson["carried"] / known_rps({**DEFAULTS, **config}))))
        times = np.array([self._seen[0][1] - log for _, log in self._seen[1:]])
        precision = np.eye(len(times)) / _OVER**2
        self._beliefs.learn([{**DEFAULTS, **c} for c, _ in self._seen[1:]], precision, precision @ times)

    def _draws(self, configs: Sequence[LaunchConfig]) -> np.ndarray:
        return self._beliefs.draws([{**DEFAULTS, **config} for config in configs])


def _cached_slows(flags: Mapping[str, Any]) -> float:
    return known_rps(flags) * (0.75 if flags["enable-prefix-caching"] else 1.0)


def _long_slows(flags: Mapping[str, Any]) -> float:
    return known_rps(flags) * math.exp(-0.3 * flags["max-model-len"] / 8192)


class _ToTheFinals(Watcher):
    """The search is what is looked at; its finals would take most of the time."""

    def final_started(self, *_: Any) -> None:
        raise KeyboardInterrupt


def _guided(engine: ToyEngine, place: StudyPlace) -> list[LaunchConfig]:
    job = replace(make_job(engine, trials=TRIALS), predictor=Learning())
    with pytest.raises(KeyboardInterrupt):
        tune(job, place, _ToTheFinals())
    return engine.launched


def _engine(speed: Callable[[Mapping[str, Any]], float]) -> ToyEngine:
    return ToyEngine(deterministic=False, spread=0.02, seed=3, name="vllm", speed=speed)


@pytest.mark.parametrize(
    ("speed", "flag", "wanted"),
    [
        (_cached_slows, "enable-prefix-caching", lambda value: value is False),
        (_long_slows, "max-model-len", lambda value: value <= 5120),
    ],
)
def test_the_winner_has_what_the_hidden_effect_demands(
    place: StudyPlace,
    speed: Callable[[Mapping[str, Any]], float],
    flag: str,
    wanted: Callable[[Any], bool],
) -> None:
    engine = _engine(speed)
    launched = _guided(engine, place)
    best = max(launched, key=lambda config: speed({**DEFAULTS, **config}))
    assert wanted(best.get(flag, DEFAULTS[flag]))
    assert speed({**DEFAULTS, **best}) > 1.3 * speed(DEFAULTS)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[LaunchConfig]:
    return _guided(_still(), StudyPlace("toy", tmp_path_factory.mktemp("straight")))


@pytest.mark.parametrize("at", [3])
def test_a_guided_study_that_was_interrupted_proposes_the_same(
    place: StudyPlace, straight: list[LaunchConfig], at: int
) -> None:
    engine = _still()

    def stop(count: int) -> None:
        if count == at:
            raise KeyboardInterrupt

    engine.before_launch = stop
    begun = _guided(engine, place)[: at - 1]
    assert len(begun) == at - 1 < len(straight) == TRIALS
    assert [*begun, *_guided(_still(), place)] == straight


def _still() -> ToyEngine:
    """Noise would differ after the interruption; the study still takes the engine for one that varies."""
    return ToyEngine(deterministic=False, spread=0.0, name="vllm", speed=_cached_slows)
