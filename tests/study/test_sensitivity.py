"""How far a recommendation holds, by a predictor whose answers are a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from toy import make_job, make_trace

from tuner.space.config import LaunchConfig
from tuner.spec import Slo
from tuner.study.finalist import Figures, Finalist
from tuner.study.sensitivity import burstier, flag_gains, least_change, longer_prompts, sensitivity
from tuner.traces import Trace


class Formula:
    """More sequences carry more, but nothing of prompts over 3,200 tokens."""

    def capacity_rps(
        self, config: LaunchConfig, *, trace: Trace | None = None, slo: Slo | None = None
    ) -> float:
        seqs = config.get("max-num-seqs", 256)
        assert isinstance(seqs, int)
        if trace is not None and seqs > 256 and int(trace.input_tokens.max()) > 3200:
            return 0.0
        length = float(trace.input_tokens.mean()) if trace is not None else 1600.0
        return seqs / 256 * 1600.0 / length * (1.0 if slo is None else (slo.e2e_p99_s or 0.0) / 30.0)

    def spread(self, config: LaunchConfig) -> float:
        return 0.1

    def learn(self, *_: Any) -> None:
        pass

    def lesson(self, *_: Any) -> Mapping[str, Any]:
        return {}

    def recall(self, lesson: Mapping[str, Any]) -> None:
        pass


class Held(Formula):
    """A few long requests hold up all others."""

    def capacity_rps(
        self, config: LaunchConfig, *, trace: Trace | None = None, slo: Slo | None = None
    ) -> float:
        return 0.5 if trace is None else super().capacity_rps(config, trace=trace, slo=slo)


def finalist(rps: float, **flags: Any) -> Finalist:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    figures = Figures(rps, rps, 0.0, 20.0, (10.0, 30.0), 5.0)
    return Finalist("A", LaunchConfig.of(named), 1.0, named, figures=figures)


def test_shifts_and_what_breaks() -> None:
    job = replace(make_job(), predictor=Formula())
    found = sensitivity(job, make_trace(), finalist(4.0), finalist(8.0, max_num_seqs=512))
    shifts = {shift.name: shift for shift in found.shifts}
    assert list(shifts) == ["SLO 0.5x", "SLO 1x", "SLO 2x", "longer prompts", "burstier arrivals"]
    assert (shifts["SLO 0.5x"].default_rps, shifts["SLO 2x"].tuned_rps) == (2.0, 16.0)
    assert shifts["longer prompts"].tuned_rps == 0.0 and found.brittle.startswith("longer prompts")
    assert sensitivity(make_job(), make_trace(), finalist(4.0), finalist(8.0)).brittle == ""


def test_a_few_long_requests_have_a_queue_of_their_own() -> None:
    trace = make_trace()
    long = np.where(np.arange(len(trace)) % 25 == 0, 40_000, 1000).astype(np.int32)
    skewed = replace(trace, input_tokens=long)
    job = replace(make_job(), predictor=Held())
    found = sensitivity(job, skewed, finalist(0.5), finalist(0.5)).separate
    assert found is not None and found.split_tokens == 40_000 and found.long_share == 0.04
    assert found.short_rps > found.together_rps > found.long_rps


def test_what_each_flag_gave_and_what_is_of_no_use() -> None:
    winner = finalist(8.0, max_num_seqs=512, block_size=32)
    job = replace(make_job(), predictor=Formula())
    gains = flag_gains(job, winner, ())
    assert [(gain.flag, gain.gain, gain.source) for gain in gains] == [
        ("max-num-seqs", 0.5, "simulated"),
        ("block-size", 0.0, "simulated"),
    ]
    assert dict(least_change(Formula(), winner.config, winner.changed)) == {"max-num-seqs": 512}
    assert flag_gains(make_job(), winner, ()) == ()


def test_shifted_traffic_keeps_its_requests() -> None:
    trace = make_trace()
    assert np.all(np.diff(burstier(trace).arrival_s) >= 0.0)
    assert np.all(burstier(trace).arrival_s % 60.0 < 30.0 + 1e-9)
    assert longer_prompts(trace).input_tokens.mean() > 1.19 * trace.input_tokens.mean()
