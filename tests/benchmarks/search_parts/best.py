"""The best of 2,000 points of a problem, and what each hidden effect does to it; kept in `best.json`.

1,400 points are spread over the space and 600 go around the best of them, flag by flag and in pairs. Points
that arithmetic refuses do not count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search_parts.effects import Effect
from search_parts.problem import Problem
from search_parts.truth import Scale
from tuner.space import LaunchConfig, Parameter, ParameterKind

SPREAD, AROUND = 1400, 600
SPREAD_WITHOUT, AROUND_WITHOUT = 80, 160
FILE = Path(__file__).parent / "best.json"
LEAST_LOSS = 0.10
"""Who ignores an effect loses at least this share of the best capacity."""
_LEVELS = 9
_SHIFTS = (0.7, 0.85, 1.18, 1.4)
_TIE = 0.97

Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bite:
    """What an effect does: who ignores it takes `flags`, and loses `loss` of the best capacity."""

    effect: str
    flags: dict[str, Any]
    loss: float


@dataclass(frozen=True, slots=True)
class Best:
    """The best point, what vLLM's defaults carry, the shares refused by arithmetic and crashed of points at
    random.
    """

    digest: str
    flags: dict[str, Any]
    rps: float
    default_rps: float
    refused: float
    crashed: float
    bites: tuple[Bite, ...]
    points: int = SPREAD + AROUND


class Hunt:
    """A search with the truth in hand."""

    def __init__(self, problem: Problem, scale: Scale, seed: int) -> None:
        self.problem, self.scale = problem, scale
        rules = problem.rules()
        space = problem.space.widened(rules.memory.resolve.defaults)
        self.space, self._rules = space, rules
        self._rng = np.random.default_rng(seed)
        self._levels = {p.name: _levels(p) for p in space.parameters}
        self.best: Point = space.params_of(rules.memory.resolve.defaults)
        self.rps = scale.capacity(self.config(self.best))
        self.refused = self.counted = self.crashed = 0
        self._seen: set[str] = set()

    def config(self, point: Point) -> LaunchConfig:
        return self.space.config(point)

    def levels(self, flag: str) -> list[Any]:
        """The values of a flag that points are spread over."""
        return self._levels[flag]

    def offer(self, point: Point) -> bool:
        """Try a point; whether it counted."""
        config = self.config(point)
        if config.key() in self._seen:
            return False
        self._seen.add(config.key())
        if self._rules.check(config) is not None:
            self.refused += 1
            return False
        self.counted += 1
        if self.scale.capacity(config, beat=self.rps) > self.rps:
            found = self.scale.capacity(config)  # as an export is weighed
            if found > self.rps:
                self.best, self.rps = point, found
        return True

    def spread(self, count: int) -> None:
        """Points at random over the levels of every flag."""
        tried = 0
        while tried < count:
            tried += self.offer(self._random())

    def around(self, count: int) -> None:
        """Points that differ from the best by a flag, then by two."""
        tried = 0
        while tried < count:
            before = self.rps
            for point in list(self._neighbours()):
                if tried >= count:
                    return
                tried += self.offer({**self.best, **point})
            if self.rps > before:
                continue
            for _ in range(40):
                if tried >= count:
                    return
                one, other = self._rng.choice(list(self._levels), 2, replace=False)
                near = {name: self._near(name) for name in (one, other)}
                tried += self.offer({**self.best, **near}) or 0.02

    def _random(self) -> Point:
        return {name: levels[int(self._rng.integers(len(levels)))] for name, levels in self._levels.items()}

    def _neighbours(self) -> Iterator[Point]:
        for parameter in self.space.parameters:
            for level in self._levels[parameter.name]:
                yield {parameter.name: level}
            if parameter.kind is ParameterKind.INT:
                for shift in _SHIFTS:
                    value = round(self.best[parameter.name] * shift)
                    yield {parameter.name: int(min(max(value, parameter.low), parameter.high))}

    def _near(self, name: str) -> Any:
        parameter = next(p for p in self.space.parameters if p.name == name)
        if parameter.kind is ParameterKind.INT:
            value = self.best[name] * math.exp(self._rng.uniform(-0.5, 0.5))
            return int(min(max(round(value), parameter.low), parameter.high))
        levels = self._levels[name]
        return levels[int(self._rng.integers(len(levels)))]


def _levels(parameter: Parameter) -> list[Any]:
    if parameter.kind is ParameterKind.CHOICE:
        return list(parameter.distribution().choices)  # type: ignore[attr-defined]
    if parameter.kind is ParameterKind.INT:
        values = np.geomspace(parameter.low, parameter.high, _LEVELS)
        return sorted({round(float(v)) for v in values})
    steps = round((parameter.high - parameter.low) / (parameter.step or 0.01))
    return [round(parameter.low + k * (parameter.step or 0.01), 10) for k in range(0, steps + 1, 2)]


def find_best(problem: Problem, *, spread: int = SPREAD, around: int = AROUND) -> Best:
    """Search the truth of a problem, and the truth without each of its effects."""
    scale = Scale(problem)
    hunt = Hunt(problem, scale, problem.number)
    default_rps = hunt.rps
    hunt.spread(spread)
    refused = hunt.refused / (hunt.refused + hunt.counted)
    crashed = _crashed(problem, hunt)
    hunt.around(around)
    bites = tuple(
        bite_of(problem, hunt, effect, SPREAD_WITHOUT, AROUND_WITHOUT) for effect in problem.hidden.effects
    )
    return Best(
        problem.digest(),
        dict(hunt.config(hunt.best)),
        hunt.rps,
        default_rps,
        round(refused, 3),
        round(crashed, 3),
        bites,
        spread + around,
    )


def _crashed(problem: Problem, hunt: Hunt, draws: int = 300) -> float:
    """Share of the points allowed by arithmetic that do not start."""
    from tuner.engines.base import LaunchFailure

    rules, rng, allowed, dead = problem.rules(), np.random.default_rng(7), 0, 0
    for _ in range(draws):
        point = {name: levels[int(rng.integers(len(levels)))] for name, levels in hunt._levels.items()}
        config = hunt.config(point)
        if rules.check(config) is not None:
            continue
        allowed += 1
        try:
            problem.truth.start(config)
        except LaunchFailure:
            dead += 1
    return dead / max(allowed, 1)


def plainly_bites(problem: Problem, hunt: Hunt, effect: Effect) -> Bite | None:
    """The bite of an effect that can be seen at once: the best with the effect's flag at vLLM's default is as
    good without the effect, and a tenth worse with it.
    """
    without = Scale(problem, problem.hidden.without(effect))
    default = hunt.space.params_of(problem.rules().memory.resolve.defaults)
    config = hunt.config({**hunt.best, effect.flag: default[effect.flag]})
    if without.capacity(config) < _TIE * without.capacity(hunt.config(hunt.best)):
        return None
    loss = 1.0 - hunt.scale.capacity(config) / hunt.rps
    return Bite(type(effect).__name__.lower(), dict(config), loss) if loss >= LEAST_LOSS else None


def bite_of(problem: Problem, hunt: Hunt, effect: Effect, spread: int, around: int) -> Bite:
    """Who ignores the effect: the best without it, at vLLM's default where that is within noise."""
    if (plain := plainly_bites(problem, hunt, effect)) is not None:
        return plain
    without = Scale(problem, problem.hidden.without(effect))
    other = Hunt(problem, without, problem.number + 1)
    other.offer(hunt.best)
    other.spread(spread)
    other.around(around)
    default = other.space.params_of(problem.rules().memory.resolve.defaults)
    choice = {**other.best, effect.flag: default[effect.flag]}
    if without.capacity(other.config(choice)) < _TIE * other.rps:
        choice = other.best
    config = hunt.config(choice)
    return Bite(type(effect).__name__.lower(), dict(config), 1.0 - hunt.scale.capacity(config) / hunt.rps)


def to_json(best: Best) -> dict[str, Any]:
    return {
        "digest": best.digest,
        "flags": best.flags,
        "rps": best.rps,
        "default_rps": best.default_rps,
        "points": best.points,
        "refused": best.refused,
        "crashed": best.crashed,
        "effects": [{"effect": b.effect, "loss": round(b.loss, 4), "flags": b.flags} for b in best.bites],
    }


def from_json(kept: dict[str, Any]) -> Best:
    bites = tuple(Bite(b["effect"], b["flags"], b["loss"]) for b in kept["effects"])
    shares = (kept["refused"], kept["crashed"])
    return Best(
        kept["digest"], kept["flags"], kept["rps"], kept["default_rps"], *shares, bites, kept["points"]
    )


def kept(problem: Problem, file: Path = FILE) -> Best | None:
    """What is kept of a problem, whether or not it has changed since."""
    entries = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    entry = entries.get(str(problem.number))
    return from_json(entry) if entry is not None else None


def best_of(problem: Problem, file: Path = FILE) -> Best:
    """The kept best, found anew (and kept) where the problem has changed."""
    best = kept(problem, file)
    if best is not None and best.digest == problem.digest():
        return best
    return _keep(problem, find_best(problem), file)


def _keep(problem: Problem, best: Best, file: Path = FILE) -> Best:
    entries = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    entries[str(problem.number)] = to_json(best)
    ordered = dict(sorted(entries.items(), key=lambda item: int(item[0])))
    file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return best


def main() -> None:
    """`python -m search_parts.best [NUMBERS] [--points N]`: find what is not kept, or with fewer points."""
    import argparse

    from search_parts.developing import DEVELOPING
    from search_parts.sealed import SEALED

    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--points", type=int, default=SPREAD + AROUND)
    options = parser.parse_args()
    for problem in (*DEVELOPING, *SEALED):
        best = kept(problem)
        known = best is not None and best.digest == problem.digest() and best.points >= options.points
        if known or (options.numbers and problem.number not in options.numbers):
            continue
        around = options.points * AROUND // (SPREAD + AROUND)
        best = _keep(problem, find_best(problem, spread=options.points - around, around=around))
        bites = ", ".join(f"{b.effect} {b.loss:.0%}" for b in best.bites)
        print(
            f"{problem.number} {problem.title}: {best.default_rps:.3f} to {best.rps:.3f}, {bites}", flush=True
        )


if __name__ == "__main__":
    main()
