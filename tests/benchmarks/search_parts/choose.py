"""Draws the sealed problems: `python -m search_parts.choose [NUMBERS]` prints what stands in `sealed.py`.

Traffic, coefficients and effects come from a seed; the SLO is two to four times what a request takes alone.
The strength of an effect that depends on the load (a cliff in the number of sequences, a slow frontend) is
set from what the place carries without any effect. A draw is kept when its best beats vLLM's defaults by 10%
and each effect moves the best configuration by 10%. Only the truth is looked at, never what a search makes
of it.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from search_parts import best
from search_parts.effects import (
    Backend,
    Bookkeeping,
    Cliff,
    Effect,
    Fragments,
    Overlap,
    Streams,
    Tables,
)
from search_parts.hide import hide
from search_parts.problem import Problem
from search_parts.truth import Scale
from tuner.engines.base import LaunchFailure
from tuner.space import LaunchConfig
from tuner.spec import Slo

SEED = 61_803_399
FIRST = 7
PLACES = (
    ("A100-80G", "kimi-k2.6-awq"),
    ("A100-80G", "Qwen/Qwen3-14B"),
    ("H20-96G", "Qwen/Qwen3-32B"),
    ("H100-80G", "meta-llama/Llama-3.1-8B-Instruct"),
    ("H100-80G", "Qwen/Qwen3-30B-A3B"),
    ("H200-141G", "Qwen/Qwen3-32B"),
    ("H200-141G", "moonshotai/Moonlight-16B-A3B-Instruct"),
    ("L40S-48G", "Qwen/Qwen3-14B"),
    ("A6000-48G", "Qwen/Qwen3-8B"),
    ("RTX4090-24G", "Qwen/Qwen3-4B"),
    ("2xH200-141G", "meta-llama/Llama-3.1-70B-Instruct"),
    ("L4-24G", "Qwen/Qwen3-1.7B"),
)
TRACES = ("shipped", "conversation", "code", "reasoning", "documents", "short chat", "agents")
_SHARED = ("shipped", "documents", "short chat", "agents")
_BARE, _AROUND = 30, 45
_LOWEST_RPS, _SPARE = 0.15, 0.02


def draw(number: int, attempt: int) -> tuple[Problem, int]:
    """A sealed problem, and the seed of what it hides."""
    order = np.random.default_rng(SEED).permutation(len(PLACES))
    gpu, model = PLACES[order[number - FIRST]]
    rng = np.random.default_rng([SEED, number, attempt])
    trace = TRACES[(number - FIRST) % len(TRACES)]
    seed = int(rng.integers(1_000_000))
    loose = Problem(number, gpu, model, trace, Slo(e2e_p99_s=600.0), hide(seed))
    e2e = _nice(float(rng.uniform(2.0, 4.0)) * _alone_s(loose))
    ttft = float(rng.choice((3.0, 5.0))) if rng.random() < 0.4 else None
    bare = replace(loose, slo=Slo(e2e_p99_s=e2e, ttft_p99_s=ttft))
    hunt = best.Hunt(bare, Scale(bare), number)
    hunt.around(_BARE)
    if hunt.rps < _LOWEST_RPS:
        return bare, seed
    return replace(bare, hidden=hide(seed, *_effects(rng, bare, hunt))), seed


def _alone_s(problem: Problem) -> float:
    """P99 of requests that have the server to themselves, nearly."""
    lengths = next(p for p in problem.space.parameters if p.name == "max-model-len").choices
    shortest = min(n for n in lengths if isinstance(n, int))
    scale = Scale(problem)
    for share in (0.9, 0.94, 0.96):
        flags = {**problem.space.config({"max-model-len": shortest}), "gpu-memory-utilization": share}
        try:
            return scale.alone_s(LaunchConfig.of(flags))
        except LaunchFailure:
            continue
    return 30.0


def _nice(seconds: float) -> float:
    """Rounded as people write an SLO."""
    return next((float(n) for n in (10, 15, 20, 30, 45, 60, 90, 120) if n >= seconds), 180.0)


def _effects(rng: np.random.Generator, bare: Problem, hunt: best.Hunt) -> list[Effect]:
    """One or two effects of flags with ranges, the rest of flags that are chosen."""

    def between(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 3)

    answer = float(bare.trace.output_tokens.mean())
    stream_s = 1.0 / (between(0.65, 0.85) * hunt.rps * answer)
    running = hunt.scale.running(hunt.config(hunt.best), hunt.rps)
    ranged: list[Effect] = [
        Cliff(max(round(between(0.4, 0.7) * running), 4), between(0.6, 1.2)),
        Fragments(between(0.87, 0.89), between(0.15, 0.25)),
        Streams(float(f"{stream_s:.3g}")),
    ]
    chosen: list[Effect] = [
        Backend(int(rng.choice((32, 64))), between(0.15, 0.25)),
        Overlap(between(0.15, 0.22)),
        Tables(between(0.18, 0.3)),
    ]
    if bare.trace_name not in _SHARED:
        chosen.append(Bookkeeping(between(0.15, 0.22)))
    count = int(rng.integers(1, 3))
    found: list[Effect] = []
    for kinds, wanted in ((ranged, count), (chosen, 3 - count)):
        found += [kinds[place] for place in rng.permutation(len(kinds))[:wanted]]
    return found


def well_posed(problem: Problem) -> tuple[bool, str]:
    """Whether the best beats the default and every effect bites; and what was seen."""
    if not problem.hidden.effects:
        return False, "carries next to nothing"
    hunt = best.Hunt(problem, Scale(problem), problem.number)
    default = hunt.rps
    for _ in range(2):
        for effect in problem.hidden.effects:
            for level in hunt.levels(effect.flag):
                hunt.offer({**hunt.best, effect.flag: level})
    hunt.around(_AROUND)
    said = f"default {default:.3f}, best {hunt.rps:.3f}"
    if hunt.rps < max((1.0 + best.LEAST_LOSS) * default, _LOWEST_RPS):
        return False, said
    for effect in problem.hidden.effects:
        bite = best.plainly_bites(problem, hunt, effect)
        said += f", {type(effect).__name__.lower()} {bite.loss if bite else 0.0:.3f}"
        if bite is None or bite.loss < best.LEAST_LOSS + _SPARE:
            return False, said
    return True, said


def main() -> None:
    numbers = [int(n) for n in sys.argv[1:]] or list(range(FIRST, FIRST + len(PLACES)))
    for number in numbers:
        for attempt in range(40):
            problem, seed = draw(number, attempt)
            good, said = well_posed(problem)
            print(f"# {number} {attempt} {problem.title}: {said}", file=sys.stderr, flush=True)
            if good:
                effects = ", ".join(repr(effect) for effect in problem.hidden.effects)
                print(
                    f'Problem({number}, "{problem.gpu_name}", "{problem.model}", "{problem.trace_name}", '
                    f"{problem.slo!r}, hide({seed}, {effects})),",
                    flush=True,
                )
                break


if __name__ == "__main__":
    main()
