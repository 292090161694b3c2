"""The predictor against the engine that it predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.cli.setup import predictor_of, prepare
from tuner.engines.simulated import SimulatedEngine
from tuner.space import LaunchConfig
from tuner.spec import EngineChoice, Slo, TuneSpec
from tuner.study import make_offer, split
from tuner.study.load import search

SPEC = TuneSpec(
    gpu="A100-80G", slo=Slo(e2e_p99_s=30.0), model="kimi-k2.6-awq", engine=EngineChoice.SIM, requests=400
)


@pytest.fixture(scope="module")
def made():  # type: ignore[no-untyped-def]
    return prepare(SPEC)


def test_prediction_lies_between_what_passes_and_what_fails(made) -> None:  # type: ignore[no-untyped-def]
    predictor = predictor_of(made.place, made.shape, SPEC, made.trace)
    offer = make_offer(split(made.trace).search, SPEC)
    for flags in ({}, {"max-num-seqs": 64}, {"max-num-seqs": 16}):
        config = LaunchConfig.of(flags)
        server = SimulatedEngine(made.place.gpu, made.shape, "0.21.0").launch(config, Path())
        measured = search(offer, lambda load, s=server: offer.judge(s.replay, load), offer.start)
        low, high = measured.bracket_rps
        assert low * 0.999 <= predictor.capacity_rps(config) <= high


def test_another_slo_and_what_cannot_start(made) -> None:  # type: ignore[no-untyped-def]
    predictor = predictor_of(made.place, made.shape, SPEC, made.trace)
    config = LaunchConfig.of({"max-num-seqs": 64})
    strict = predictor.capacity_rps(config, slo=Slo(e2e_p99_s=15.0))
    assert 0.0 < strict < predictor.capacity_rps(config)
    assert predictor.capacity_rps(LaunchConfig.of({"gpu-memory-utilization": 0.2})) == 0.0
    assert 0.0 < predictor.spread(config) < 0.05


def test_learning_is_recalling_a_lesson(made) -> None:  # type: ignore[no-untyped-def]
    import json

    predictor = predictor_of(made.place, made.shape, SPEC, made.trace)
    config = LaunchConfig.of({"max-num-seqs": 64})
    server = SimulatedEngine(made.place.gpu, made.shape, "0.21.0").launch(config, Path())
    offer = make_offer(split(made.trace).search, SPEC)
    judged = [(3.0, offer.judge(server.replay, 3.0))]
    lesson = predictor.lesson(config, server.facts, judged)
    predictor.recall(json.loads(json.dumps(lesson)))
    predictor.learn(config, server.facts, judged)
