"""Studies as a tune job leaves them, made in moments: finished, interrupted, with crashes, hostile, large."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.profiles import Measured, Profile, UsersRow
from tuner.profiles.cost import GpuCost
from tuner.profiles.evidence import (
    CardsRow,
    Drift,
    FinalRow,
    FlagGain,
    PredictionRow,
    SeparateQueue,
    Shift,
    Tie,
)
from tuner.space import LaunchConfig
from tuner.study import StudyPlace, TuneResult
from tuner.study.attrs import packed
from tuner.study.results import result_to_json
from tuner.study.storage import open_storage

SLO_S = 30.0
SPACE = {
    "enable-prefix-caching": CategoricalDistribution([True, False]),
    "gpu-memory-utilization": FloatDistribution(0.8, 0.97),
    "max-num-batched-tokens": IntDistribution(1024, 16384, log=True),
    "max-num-seqs": IntDistribution(16, 1024, log=True),
}
HOSTILE = (
    "<script>alert('x')</script> | `rm -rf` **bold** [a](javascript:alert(1)) =cmd|' /C calc'!A0\n# head "
)
JOB = {
    "gpu": "A100-80G",
    "slo": {"e2e_p99_s": SLO_S},
    "model": "kimi-k2.6-awq",
    "trace": None,
    "engine": "sim",
    "space": None,
    "fixed": {},
    "load": "rate",
    "requests": 1000,
    "coverage": None,
    "seed": 0,
    "vllm_version": "0.21.0",
    "trace_digest": "28affb369df97d44",
    "space_digest": "68596c9c12e3",
}


def replay(load: float, capacity: float, *, invalid: str | None = None) -> dict[str, Any]:
    """The figures of one replay of a server that carries `capacity`."""
    p99 = 2.0 + 26.5 * (load / capacity) ** 3
    over = p99 > 0.95 * SLO_S
    verdict = "INVALID" if invalid else "FAIL" if over else "PASS"

    def figures(scale: float) -> dict[str, Any]:
        value = None if p99 > 1.6 * SLO_S else p99 * scale
        return {
            "mean": p99 * scale / 4,
            "p50": p99 * scale / 3,
            "p90": p99 * scale / 2,
            "p99": value,
            "p99_interval": [
                None if value is None else value * 0.95,
                None if value is None else value * 1.06,
            ],
        }

    return {
        "load": load,
        "engine_s": 120.0,
        "users": None,
        "verdict": verdict,
        "reason": "as made",
        "simulated": True,
        "offered_rps": load,
        "achieved_rps": load,
        "requests": 1000,
        "failed": 0,
        "errors": {},
        "e2e_s": figures(1.0),
        "ttft_s": figures(0.1),
        "tpot_s": figures(0.004),
        "lag_s": {"p50": 0.0, "p99": 0.001, "max": 0.002},
        "output_tps": load * 140.0,
        "goodput_rps": load,
        "attainment": 0.995,
        "tokens_estimated": False,
        "counters": {},
        "invalid_reason": invalid,
    }


def trial(number: int, kind: str, *, capacity: float, cause: str = "", incumbent: float = 0.0) -> FrozenTrial:
    """One finished trial; `kind` is an outcome, or "interrupted"."""
    params = {
        "enable-prefix-caching": bool(number % 3),
        "gpu-memory-utilization": 0.8 + (number * 7 % 17) / 100,
        "max-num-batched-tokens": 1024 + number * 37 % 15000,
        "max-num-seqs": 16 + number * 61 % 1000,
    }
    starts = kind in ("ok", "slo")
    config = {} if number == 0 else params
    attrs: dict[str, Any] = {
        "origin": "vllm-default" if number == 0 else "sampler",
        "outcome": kind,
        "cause": cause,
        "config": config,
        "changed": config,
        "key": f"{number}",
        "launched": int(kind != "refused"),
        "launches": int(kind != "refused"),
        "engine_s": 700.0 if starts else 55.0 if kind == "crash" else 0.0,
    }
    if starts:
        attrs |= {
            "metric": "e2e",
            "p99_s": 27.3,
            "limit_s": SLO_S,
            "slo_margin": -0.09,
            "e2e_p99_s": 27.3,
            "ttft_p99_s": 2.1,
            "tpot_p99_s": 0.11,
            "attainment": 0.995,
            "startup_s": 60.0,
            "replay_s": 630.0,
            "warm_up_s": 10.0,
            "kv_tokens": 1_300_000,
            "replays": 7,
        }
        attrs["predicted"] = {"rps": capacity * 1.1, "spread": 0.1, "launches_before": number}
    if kind == "slo":
        attrs |= {"censored": True, "lost_at_rps": incumbent, "p99_s": None}
    if kind == "ok":
        attrs["capacity_rps"] = capacity
    if kind == "crash":
        attrs |= {"failure": "kv_memory", "mend": "lower max-model-len"}
    if kind == "refused":
        attrs["rule"] = "memory"
    if kind == "interrupted":
        return create_trial(
            params=params, distributions=SPACE, state=TrialState.FAIL, user_attrs=packed(attrs)
        )
    return create_trial(
        params=params,
        distributions=SPACE,
        value=capacity if starts else 0.5,
        constraints={"crash": -1.0 if starts else 1.0, "p99": -0.04 if starts else 1.2},
        user_attrs=packed(attrs),
    )


def make_study(
    root: Path,
    name: str = "made",
    *,
    kinds: str = "okokscrokso",
    finish: str | None = "tuned",
    hostile: str = "",
    evidence: bool = True,
    invalid: str | None = None,
) -> StudyPlace:
    """A study in `root`. A letter of `kinds` is a trial: o met the SLO, k the same and better, s lost, c a
    crash, r refused, i interrupted. `finish` is the recommendation, None for a study that has none yet.
    """
    place = StudyPlace(name, root)
    storage = open_storage(place, quick=True)
    study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
    study.set_user_attr("job", {**JOB, **({"model": hostile} if hostile else {})})
    study.set_metric_names(["requests/s"])
    letters = {"o": "ok", "k": "ok", "s": "slo", "c": "crash", "r": "refused", "i": "interrupted"}
    best, trials = 0.0, []
    for number, letter in enumerate(kinds):
        kind = letters[letter]
        capacity = 7.0 if best == 0.0 else best * (1.05 if letter == "k" else 0.9)
        cause = hostile or "no room for the KV cache: 2.1 GiB are left, 4.0 GiB are needed"
        failed = kind in ("crash", "refused")
        trials.append(trial(number, kind, capacity=capacity, cause=cause if failed else "", incumbent=best))
        if kind == "ok":
            best = max(best, capacity)
        folder = place.trial_folder(number)
        folder.mkdir(parents=True)
        loads = [capacity * 1.05**step for step in (-16, -8, -4, -2, 0, 1, 2, 8)]
        if kind in ("ok", "slo"):
            told = [
                replay(load, capacity, invalid=invalid if load < capacity / 2 else None) for load in loads
            ]
            (folder / "replays.json").write_text(json.dumps(told))
        if kind == "crash":
            (folder / "server.log").write_text(f"INFO starting\nERROR {cause}\n")
    study.add_trials(trials)
    if finish is not None:
        _finish(study, place, finish, best or 7.0, hostile, evidence=evidence)
    return place


def _finish(
    study: optuna.Study, place: StudyPlace, finish: str, best: float, hostile: str, *, evidence: bool
) -> None:
    flags = LaunchConfig.of({hostile or "max-num-seqs": 77, "enable-prefix-caching": True})
    default = Measured(
        LaunchConfig(),
        ("vllm", "serve", "kimi-k2.6-awq"),
        7.0,
        980.0,
        28.1,
        (26.9, 29.7),
        5.1,
        131,
        1_333_248,
        55.0,
        {"max-num-seqs": 256, "enable-prefix-caching": True},
        hostile,
    )
    words = (
        "vllm",
        "serve",
        "kimi-k2.6-awq",
        "--enable-prefix-caching",
        f"--{hostile or 'max-num-seqs'}",
        "77",
    )
    tuned = replace(
        default, flags=flags, command=words, throughput_rps=best, output_tps=best * 140, users=190
    )
    winner = {"tuned": tuned, "default": default}.get(finish)
    for index, (measured, capacity) in enumerate([(tuned, best), (default, 7.0)], 1):
        folder = place.finals_folder(index)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(json.dumps(dict(measured.flags)))
        loads = [capacity * 1.05**step for step in (-10, -4, -1, 0, 1, 3)]
        (folder / "replays.json").write_text(json.dumps([replay(load, capacity) for load in loads]))
        went = {"engine_s": 800.0, "startup_s": 70.0, "warm_up_s": 5.0, "replay_s": 725.0, "failure": None}
        (folder / "launch.json").write_text(json.dumps(went))
    gain = best / 7.0 if finish == "tuned" else 1.0 if finish == "default" else None
    profile = None
    if winner is not None:
        profile = Profile(
            study=place.name,
            gpu="A100-80G",
            model="kimi-k2.6-awq",
            vllm_version="0.21.0",
            slo={"e2e_p99_s": SLO_S},
            trace={"path": "shipped"},
            window=(0.5, 1.0),
            start_rps=1.67,
            requests=1000,
            seed=0,
            recommendation=finish,
            winner=winner,
            baseline=default,
            gain=gain,
            provenance="simulated",
            created="2026-11-30T12:00:00+00:00",
        )
        if evidence:
            profile = replace(profile, **_evidence(flags, best, hostile))
    result = TuneResult(
        study=place.name,
        engine="sim",
        gpu="A100-80G",
        model=hostile or "kimi-k2.6-awq",
        slo={"e2e_p99_s": SLO_S},
        recommendation=finish,
        winner=winner,
        baseline=default,
        gain=gain,
        trials={"ok": 5, "slo": 2, "crash": 1},
        launches=14,
        engine_seconds=9000.0,
        profile=profile,
        users_table=(UsersRow(10, 1.7, 5.1, 1.7, 5.1), UsersRow(200, math.pi * 4, None, 11.0, 27.0)),
        closest=""
        if winner
        else f"closest: vLLM's defaults; even at 0.2 requests/s its P99 is 44 s {hostile}",
    )
    study.set_user_attr(
        "result", {"budget": {"trials": 16, "engine_s": None}, "result": result_to_json(result)}
    )
    study.set_user_attr("beyond_trials", {"launches": 2, "engine_s": 1600.0})


def _evidence(flags: LaunchConfig, best: float, hostile: str) -> dict[str, Any]:
    row = FinalRow("A", 1, best, 28.0, (26.8, 29.5), "PASS", True)
    return {
        "gain_interval": (1.08, 1.31),
        "ties": (Tie(flags, best * 0.99, tuple(flags)),),
        "flag_gains": (
            FlagGain("max-num-seqs", 77, 0.17, "engine"),
            FlagGain("block-size", 32, -0.01, "simulated"),
        ),
        "sensitivity": (
            Shift("SLO 0.5x", 4.0, 5.1, "simulated"),
            Shift("longer prompts", 3.0, 2.9, "simulated"),
        ),
        "brittle": f"longer prompts{hostile}",
        "separate": SeparateQueue(32_000, 0.03, 8.0, 6.0, 3.0),
        "finals": (row, replace(row, label="default", launch=2, load_rps=7.0)),
        "drift": Drift((7.0, 6.9), 0.014, 0.05),
        "by_cards": (CardsRow(1, 4, 7.0, 7.0, flags), CardsRow(2, 3, 15.0, 7.5, flags)),
        "machine": {"GPU": "A100-80G", "CPU model": "EPYC", "cores": 64},
        "cost": GpuCost(2.5, "USD", 2.5 / 3600, "2.5USD/h"),
        "predictions": tuple(
            PredictionRow(f"trial {n}", 7.0 + n * 0.3, 7.2 + n * 0.28, n) for n in range(1, 7)
        ),
    }
