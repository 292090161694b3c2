"""Finds well-posed draws of the sealed problems: `python -m search_parts.choose [NUMBERS]` prints them.

It looks at the truth only, never at what a search makes of it.
"""

from __future__ import annotations

import sys

from search_parts import best
from search_parts.problem import Problem
from search_parts.sealed import COUNT, FIRST, draw
from search_parts.truth import Scale

_QUICK = (60, 100)
_QUICK_WITHOUT = (30, 70)
_LOWEST_RPS = 0.15
_SPARE = 0.02


def well_posed(problem: Problem) -> tuple[bool, str]:
    """Whether the best beats the default and every effect bites; and what was seen."""
    scale = Scale(problem)
    hunt = best.Hunt(problem, scale, problem.number)
    default = hunt.rps
    hunt.spread(_QUICK[0])
    if hunt.rps < _LOWEST_RPS:
        return False, f"carries {hunt.rps:.3f}"
    hunt.around(_QUICK[1])
    said = f"{default:.3f} {hunt.rps:.3f}"
    if hunt.rps < (1.0 + best.LEAST_LOSS) * default:
        return False, said
    for effect in problem.hidden.effects:
        bite = best.bite_of(problem, hunt, effect, *_QUICK_WITHOUT)
        said += f" {bite.effect} {bite.loss:.3f}"
        if bite.loss < best.LEAST_LOSS + _SPARE:
            return False, said
    return True, said


def main() -> None:
    numbers = [int(n) for n in sys.argv[1:]] or list(range(FIRST, FIRST + COUNT))
    for number in numbers:
        for attempt in range(40):
            problem = draw(number, attempt)
            good, said = well_posed(problem)
            print(number, attempt, problem.title, said, "well-posed" if good else "", flush=True)
            if good:
                break


if __name__ == "__main__":
    main()
