"""The sealed problems: drawn from a seed of their own, never looked at while the search is developed.

Each is drawn until it is well-posed: its best beats vLLM's defaults by 10% and each of its effects moves the
best configuration by 10%. `ATTEMPTS` says which draw that was (`choose.py` found them).
"""

from __future__ import annotations

import numpy as np

from search_parts.effects import (
    Backend,
    Bookkeeping,
    Cliff,
    Effect,
    Fragments,
    Overlap,
    Stall,
    Starved,
    Streams,
    Tables,
)
from search_parts.hide import hide
from search_parts.problem import Problem
from tuner.spec import Slo

SEED = 20_261_130
FIRST, COUNT = 7, 12
ATTEMPTS: dict[int, int] = {}
_PLACES = (
    ("A100-80G", "kimi-k2.6-awq"),
    ("A100-80G", "Qwen/Qwen3-14B"),
    ("A100-80G", "Qwen/Qwen3-32B"),
    ("H100-80G", "meta-llama/Llama-3.1-8B-Instruct"),
    ("H100-80G", "Qwen/Qwen3-30B-A3B"),
    ("H200-141G", "Qwen/Qwen3-32B"),
    ("H200-141G", "moonshotai/Moonlight-16B-A3B-Instruct"),
    ("L40S-48G", "Qwen/Qwen3-14B"),
    ("A6000-48G", "Qwen/Qwen3-8B"),
    ("RTX4090-24G", "Qwen/Qwen3-4B"),
    ("2xH100-80G", "meta-llama/Llama-3.1-70B-Instruct"),
    ("L4-24G", "Qwen/Qwen3-1.7B"),
)
_TRACES = ("shipped", "conversation", "code", "reasoning", "documents", "short chat", "agents")
_SHARED = ("shipped", "documents", "short chat", "agents")


def draw(number: int, attempt: int) -> Problem:
    """One draw of a sealed problem."""
    places = np.random.default_rng(SEED).permutation(len(_PLACES))
    gpu, model = _PLACES[places[number - FIRST]]
    rng = np.random.default_rng([SEED, number, attempt])
    trace = _TRACES[(number - FIRST) % len(_TRACES)]
    long = trace == "reasoning"
    e2e = float(rng.choice((60.0, 90.0) if long else (15.0, 20.0, 30.0)))
    ttft = float(rng.choice((3.0, 5.0))) if rng.random() < 0.4 else None
    seed = int(rng.integers(1_000_000))
    return Problem(
        number, gpu, model, trace, Slo(e2e_p99_s=e2e, ttft_p99_s=ttft), hide(seed, *_effects(rng, trace))
    )


def _effects(rng: np.random.Generator, trace: str) -> list[Effect]:
    """One to two effects of flags with ranges, the rest of flags that are chosen."""

    def between(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 3)

    ranged: list[Effect] = [
        Cliff(round(float(np.exp(rng.uniform(np.log(16), np.log(160))))), between(0.5, 1.2)),
        Fragments(between(0.87, 0.9), between(0.15, 0.25)),
        Stall(round(between(1500, 3000)), between(0.4, 0.8)),
        Starved(round(between(4000, 8000)), between(0.5, 1.0)),
        Streams(round(between(80, 300)) * 1e-6),
    ]
    chosen: list[Effect] = [
        Backend(int(rng.choice((32, 64))), between(0.15, 0.25)),
        Overlap(between(0.15, 0.22)),
        Tables(between(0.18, 0.3)),
    ]
    if trace not in _SHARED:
        chosen.append(Bookkeeping(between(0.15, 0.22)))
    count = int(rng.integers(1, 3))
    found: list[Effect] = []
    for kinds, wanted in ((ranged, count), (chosen, 3 - count)):
        taken: set[str] = set()
        for place in rng.permutation(len(kinds)):
            effect = kinds[place]
            if len(taken) < wanted and effect.flag not in taken:
                taken.add(effect.flag)
                found.append(effect)
    return found


SEALED = tuple(draw(number, ATTEMPTS[number]) for number in sorted(ATTEMPTS))
