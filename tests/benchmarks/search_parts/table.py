"""The table: methods by launches, and every problem on its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median

from search_parts.best import best_of
from search_parts.longrun import DRAWS
from search_parts.problem import Problem
from search_parts.score import Score
from search_parts.truth import REQUESTS


def heading(problems: Sequence[Problem]) -> list[str]:
    """What the table is about."""
    first, last = problems[0].number, problems[-1].number
    return [
        "# How good is the search?",
        "",
        f"`python tests/benchmarks/search.py`, problems {first} to {last}. The truth of a problem is a",
        "scheduler with a step time that the guide does not know, coefficients off by up to 40%, three",
        "hidden effects each of which costs 10% or more when it is ignored, launches that crash, 3% noise",
        "on throughput and 5% on P99. Regret is 1 - true capacity of the exported configuration / best of",
        "2,000 points; an export that breaks the SLO counts 100%: its P99 over a long run of the held-out",
        f"traffic at the exported load, {DRAWS} draws of {REQUESTS:,} requests, warm and without noise, is",
        "over the SLO. Every method has the same rules, baseline, guard and finals; `launches` are those of",
        "the search, the baseline's included.",
        "",
    ]


def summary(scores: Sequence[Score]) -> list[str]:
    """One line a method and number of launches."""
    lines = [
        "| method | launches | median regret | worst | SLO broken | crashes | foreseeable | launches used "
        "| finals | engine s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for method, launches in _groups((s.method, s.launches) for s in scores):
        group = [s for s in scores if (s.method, s.launches) == (method, launches)]
        regret = [s.regret for s in group]
        lines.append(
            f"| {method} | {launches} | {median(regret):.1%} | {max(regret):.1%} "
            f"| {_broken(group):.1%} | {mean(s.crashes for s in group):.2f} "
            f"| {sum(s.foreseeable for s in group)} | {mean(s.used for s in group):.1f} "
            f"| {mean(s.finals for s in group):.1f} | {mean(s.engine_s for s in group):,.0f} |"
        )
    return lines


def _broken(group: Sequence[Score]) -> float:
    """The share of the exports that break the SLO; a study that exports nothing has none."""
    exports = [s for s in group if s.flags]
    return mean(s.broken for s in exports) if exports else 0.0


def by_problem(problems: Sequence[Problem], scores: Sequence[Score]) -> list[str]:
    """The median regret of every problem, a column for each method and number of launches."""
    columns = _groups((s.method, s.launches) for s in scores)
    lines = [
        "| | problem | best / default | " + " | ".join(f"{m} {n}" for m, n in columns) + " |",
        "|--:|---|--:|" + "--:|" * len(columns),
    ]
    for problem in problems:
        best = best_of(problem)
        gain = f"{best.rps / best.default_rps:.2f}" if best.default_rps else "default carries nothing"
        cells = []
        for column in columns:
            own = [
                s.regret for s in scores if s.problem == problem.number and (s.method, s.launches) == column
            ]
            cells.append(f"{median(own):.1%}" if own else "")
        lines.append(f"| {problem.number} | {problem.title} | {gain} | " + " | ".join(cells) + " |")
    return lines


def _groups(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(pairs))
