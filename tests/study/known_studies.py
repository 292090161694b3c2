"""Seeded studies whose truth is known: what was recommended against what is so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from queue_engine import SLO_S, QueueEngine, latencies, long_run_p99_s, traffic
from toy import DEFAULTS, GPU, SHAPE, ToyRules, ToySpace, Watcher

from tuner.engines.base import Outcome
from tuner.measure import STEP, nearest_rank
from tuner.spec import Budget, Slo, TuneSpec
from tuner.study import Job, Options, StudyPlace, tune
from tuner.study.attrs import packed
from tuner.study.baseline import Baseline
from tuner.study.budget import Costs
from tuner.study.conclude import conclude
from tuner.study.finals import hold_finals
from tuner.study.load import Offer, make_offer
from tuner.study.records import TuneResult
from tuner.study.trial import Bench
from tuner.study.windows import split

CONFIGURATIONS = 12
SEARCH_NOISE = 0.035
"""Of a capacity that the scripted search finds: one launch, a few replays."""


@dataclass(frozen=True)
class Outcomes:
    """One study. `gain` and `carries` are the truth on the held-out window, those `_long` that of endless
    traffic; `best_gain` is that of the best finalist, in truth."""

    seed: int
    recommended: str
    interval: tuple[float, float]
    gain: float
    gain_long: float
    best_gain: float
    carries: bool
    carries_long: bool
    load_share: float
    said: float
    drift: float


def speed_of(seed: int, beats: bool) -> Any:
    """A landscape of requests a second: somewhere above the default, or nowhere."""
    rng = np.random.default_rng([seed, int(beats)])
    best = {
        "max-num-seqs": float(rng.uniform(math.log(32), math.log(1024))),
        "max-num-batched-tokens": float(rng.uniform(math.log(1024), math.log(8192))),
        "gpu-memory-utilization": float(rng.uniform(0.8, 0.95)),
    }
    width = {"max-num-seqs": 1.2, "max-num-batched-tokens": 0.8, "gpu-memory-utilization": 0.08}
    gain = float(np.exp(rng.uniform(math.log(0.05), math.log(0.6))))
    worse = float(rng.choice([0.0, rng.uniform(0.01, 0.15)]))

    def fit(flags: Mapping[str, Any]) -> float:
        off = 0.0
        for flag, at in best.items():
            value = flags[flag] if flag == "gpu-memory-utilization" else math.log(flags[flag])
            off += ((value - at) / width[flag]) ** 2
        return math.exp(-off / 2.0)

    at_default = fit(DEFAULTS)

    def speed(flags: Mapping[str, Any]) -> float:
        if all(flags[flag] == DEFAULTS[flag] for flag in best):
            return 8.0
        if not beats:
            return 8.0 * (1.0 - worse * (1.0 - fit(flags)))
        return 8.0 * max(1.0 + gain * (fit(flags) - at_default) / max(1.0 - at_default, 0.2), 0.4)

    return speed


def job_of(seed: int, beats: bool, *, trials: int = CONFIGURATIONS, **spread: float) -> Job:
    engine = QueueEngine(speed_of(seed, beats), seed, **spread)
    spec = TuneSpec("A100-80G", Slo(e2e_p99_s=SLO_S), "toy", requests=1000, budget=Budget(trials), seed=seed)
    return Job(
        spec=spec,
        engine=engine,
        gpu=GPU,
        shape=SHAPE,
        trace=traffic(2000, seed),
        space=ToySpace(),
        rules=ToyRules(),
        defaults=DEFAULTS,
        options=Options(fault_wait_s=0.0),
    )


def searched(seed: int, beats: bool, root: Path, **spread: float) -> Outcomes:
    """A study through the whole of `tune`."""
    job = job_of(seed, beats, **spread)
    result = tune(job, StudyPlace(f"s{seed}", root), Watcher())
    return outcomes(job, result)


def scripted(seed: int, beats: bool, root: Path, **spread: float) -> Outcomes:
    """A study whose search is made up: true capacities with noise, of which the finals get the luckiest."""
    job = job_of(seed, beats, **spread)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    space = ToySpace()
    rng = np.random.default_rng([seed, 5])
    distributions = space.distributions()
    for number in range(CONFIGURATIONS):
        config = space.config(drawn(distributions, rng)) if number else space.baseline()
        effective = {**DEFAULTS, **config}
        noisy = job.engine.truth_rps(config) * math.exp(SEARCH_NOISE * rng.standard_normal())  # type: ignore[attr-defined]
        value = STEP ** round(math.log(noisy * 0.95) / math.log(STEP))
        attrs = {
            "origin": "sampler" if number else "vllm-default",
            "outcome": Outcome.OK.value,
            "config": dict(config),
            "key": config.key(),
            "launched": 1,
        }
        study.add_trial(
            optuna.trial.create_trial(
                params={name: effective[name] for name in distributions},
                distributions=distributions,
                value=value,
                constraints={"crash": -1.0, "p99": -0.1},
                user_attrs=packed(attrs),
            )
        )
    place = StudyPlace(f"s{seed}", root)
    windows = split(job.trace)
    offers = make_offer(windows.search, job.spec), make_offer(windows.finals, job.spec)
    baseline = Baseline(space.baseline(), DEFAULTS, DEFAULTS, space, "")
    bench = Bench(job, Watcher())
    finals = hold_finals(job, place, study, bench, offers, baseline, Costs(40.0, 120.0))
    return outcomes(job, conclude(job, place, study, baseline, finals, windows, resumed=False))


def drawn(distributions: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    from tuner.study.points import draw

    return draw(distributions, rng)


def outcomes(job: Job, result: TuneResult) -> Outcomes:
    """Hold a result against the truth."""
    assert result.winner is not None and result.profile is not None
    engine = job.engine
    assert isinstance(engine, QueueEngine)
    offer = make_offer(split(job.trace).finals, job.spec)
    best, default = engine.truth_rps(result.winner.flags), engine.truth_rps({})
    said = result.profile.gain_interval or (1.0, 1.0)
    load = result.winner.throughput_rps
    trace = offer.test.loads.at(load)
    return Outcomes(
        seed=job.spec.seed,
        recommended=result.recommendation,
        interval=said,
        gain=capacity(offer, best) / capacity(offer, default),
        gain_long=long_capacity(best) / long_capacity(default),
        best_gain=max(engine.truth_rps(c) for c in engine.launched) / default,
        carries=nearest_rank(latencies(trace, best), 0.99) <= SLO_S,
        carries_long=long_run_p99_s(load, best) <= SLO_S,
        load_share=load / capacity(offer, best),
        said=result.gain or 1.0,
        drift=result.profile.drift.relative if result.profile.drift else 0.0,
    )


def capacity(offer: Offer, rps: float) -> float:
    """The load whose P99 is the SLO on this window, for an engine without noise."""
    low, high = 0.5 * rps, 1.6 * rps
    for _ in range(14):
        middle = math.sqrt(low * high)
        if nearest_rank(latencies(offer.test.loads.at(middle), rps), 0.99) <= SLO_S:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


_LONG: dict[float, float] = {}


def long_capacity(rps: float) -> float:
    """The same where traffic never ends."""
    key = round(rps, 3)
    if key not in _LONG:
        low, high = 0.5 * rps, rps
        for _ in range(10):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if long_run_p99_s(middle, rps) <= SLO_S else (low, middle)
        _LONG[key] = math.sqrt(low * high)
    return _LONG[key]
