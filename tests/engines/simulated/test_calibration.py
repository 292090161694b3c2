"""Two launches teach the predictor a machine whose coefficients are off."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import numpy as np

from tuner.engines.simulated import SimulatedEngine, SimulatedPredictor
from tuner.engines.simulated.coefficients import default_coefficients
from tuner.engines.simulated.knobs import KNOBS, stretched
from tuner.hardware import find_gpu
from tuner.measure import Judgement
from tuner.models import find_model
from tuner.space import LaunchConfig
from tuner.spec import Slo, TuneSpec
from tuner.study import make_offer, split
from tuner.study.load import search
from tuner.traces import shipped_trace

VERSION = "0.21.0"
SEED = 1
OFF = math.log(1.4)
LAUNCHED = ({}, {"max-num-seqs": 48, "max-num-batched-tokens": 4096})
UNTRIED = (
    {"max-num-seqs": 16},
    {"max-num-seqs": 96, "max-num-batched-tokens": 8192},
    {"max-num-seqs": 64, "gpu-memory-utilization": 0.84, "max-model-len": 10240},
    {"block-size": 64, "max-num-batched-tokens": 1024},
    {"async-scheduling": False, "max-num-seqs": 128},
)


def test_after_two_launches_an_untried_capacity_is_known_to_a_tenth() -> None:
    gpu, shape = find_gpu("A100-80G"), find_model("kimi-k2.6-awq")
    spec = TuneSpec(gpu="A100-80G", slo=Slo(e2e_p99_s=30.0), model=shape.name, requests=150, seed=SEED)
    offer = make_offer(split(shipped_trace()).search, spec)
    logs = np.random.default_rng(SEED).uniform(-OFF, OFF, len(KNOBS)).tolist()
    truth = stretched(default_coefficients(gpu), logs)
    machine = SimulatedEngine(gpu, shape, VERSION, seed=SEED, noise=0.02, coefficients=truth)
    predictor = SimulatedPredictor(SimulatedEngine(gpu, shape, VERSION), lambda *_: offer, exact=False)

    def measured(flags: dict[str, object]) -> float:
        """A launch, which the predictor learns from."""
        server = machine.launch(LaunchConfig.of(flags), Path())
        seen: list[tuple[float, Judgement]] = []

        def judge(load: float) -> Judgement:
            seen.append((load, offer.judge(server.replay, load)))
            return seen[-1][1]

        capacity = search(offer, judge, offer.start)
        if flags in LAUNCHED:
            predictor.learn(LaunchConfig.of(flags), server.facts, seen)
        return math.sqrt(math.prod(capacity.bracket_rps))

    truths = [measured(flags) for flags in UNTRIED]

    def error() -> float:
        said = [predictor.capacity_rps(LaunchConfig.of(flags)) for flags in UNTRIED]
        return median(abs(rps / true - 1.0) for rps, true in zip(said, truths, strict=True))

    before = error()
    for flags in LAUNCHED:
        measured(flags)
    assert error() < 0.1
    assert error() < before
