"""How good is the search? `python tests/benchmarks/search.py [--problems dev|1,4] [--methods ours,random] …`

Every method searches problems whose truth is hidden from it: GPU x model x trace x SLO, behind a step time
that is not the guide's, coefficients off by up to 40%, three effects that each move the best configuration by
10% or more, crashes, and noise. Regret is 1 - true capacity of the exported configuration / best of 2,000
points. Problems 1 to 6 are there to develop on; the others are sealed and run only with --sealed.

With --keep FILE it can be interrupted: the same command goes on. A second one beside it, with the same file
and --backwards, takes the studies from the other end; each prints the whole table when they have met.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from search_parts.developing import DEVELOPING
from search_parts.keeper import Keeper, Study
from search_parts.methods import METHODS
from search_parts.problem import Problem
from search_parts.score import Score
from search_parts.table import by_problem, heading, summary

from tuner.study.sampler import available


def _problems(text: str, sealed: bool) -> list[Problem]:
    every = list(DEVELOPING)
    if sealed:
        from search_parts.sealed import SEALED

        every += SEALED
    if text == "dev":
        return list(DEVELOPING)
    if text == "sealed":
        if not sealed:
            sys.exit("the sealed problems run only with --sealed: nobody tunes on them")
        return [p for p in every if p not in DEVELOPING]
    numbers = [int(n) for n in text.split(",")]
    found = {p.number: p for p in every}
    unknown = [n for n in numbers if n not in found]
    if unknown:
        sys.exit(f"no problem {unknown[0]} (a sealed one needs --sealed)")
    return [found[n] for n in numbers]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--problems", help="dev, sealed, or numbers such as 1,4 (default: sealed with --sealed)"
    )
    parser.add_argument("--methods", default=",".join(METHODS), help="of " + ", ".join(METHODS))
    parser.add_argument("--launches", default="4,8,16", help="launches of the search, with the baseline's")
    parser.add_argument("--seeds", type=int, default=1, help="studies of each method on each problem")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sealed", action="store_true", help="let the sealed problems run")
    parser.add_argument("--out", type=Path, help="write the table here, in Markdown")
    parser.add_argument("--json", action="store_true", help="print every study as a line of JSON")
    parser.add_argument("--keep", type=Path, help="a file of studies: what it holds is not run again")
    parser.add_argument("--again", default="", help="methods whose kept studies are run again")
    parser.add_argument("--backwards", action="store_true", help="begin with the last study (with --keep)")
    options = parser.parse_args(arguments)
    options.problems = options.problems or ("sealed" if options.sealed else "dev")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    problems = _problems(options.problems, options.sealed)
    names = options.methods.split(",")
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        sys.exit(f"no method {unknown[0]} (there are {', '.join(METHODS)})")
    launches = [int(n) for n in options.launches.split(",")]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    keeper = Keeper(options.keep, again=options.again.split(","))
    notes: list[str] = []
    studies: list[Study] = []
    for name in names:
        method = METHODS[name]
        wanted = [(p, method, count, seed) for count in launches for p in problems for seed in seeds]
        if (missing := method.missing()) and not all(map(keeper.holds, wanted)):
            notes.append(f"{name} was left out: {missing} is not installed")
        else:
            studies += wanted
    begun = time.perf_counter()
    try:
        for study in reversed(studies) if options.backwards else studies:
            _tell(keeper.score(study), options.json)
    except KeyboardInterrupt:
        print("interrupted" + (": the same command goes on" if options.keep else ""), file=sys.stderr)
        return 130
    scores = [keeper.score(study) for study in studies]
    lines = [*summary(scores), "", *by_problem(problems, scores)]
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    lines += ["", f"Seeds {seeds.start} to {seeds.stop - 1}, {datetime.now(UTC):%Y-%m-%d}."]
    lines += ["The search's sampler behind the guide was Optuna's " + available().upper() + "."]
    print("\n".join(lines), file=sys.stderr if options.json else sys.stdout)
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    if options.out:
        options.out.write_text("\n".join([*heading(problems), *lines]) + "\n", encoding="utf-8")
    return 0


def _tell(score: Score, as_json: bool) -> None:
    if as_json:
        print(json.dumps(score.to_json()), flush=True)
        return
    broken = " BROKEN" if score.broken else ""
    print(
        f"{score.method} {score.launches} problem {score.problem} seed {score.seed}: "
        f"regret {score.regret:.1%}{broken} ({score.true_rps:.3f} of {score.best_rps:.3f} requests/s), "
        f"{score.used} launches ({score.crashes} crashed) and {score.finals} in the finals, "
        f"{score.engine_s:,.0f} engine s, {score.wall_s:.1f} s here",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
