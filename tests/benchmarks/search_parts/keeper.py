"""Studies that were run before, in a file of JSON lines, so that a comparison can be made in parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from search_parts.longrun import DEFINITION
from search_parts.methods import Method
from search_parts.problem import Problem
from search_parts.score import Score, run
from tuner.spec import digest

Study = tuple[Problem, Method, int, int]
"""Problem, method, launches, seed."""


class Keeper:
    """Scores by study; without a file nothing is kept. Studies of the methods in `again` are run anew."""

    def __init__(self, path: Path | None, again: Iterable[str] = ()) -> None:
        self._path = path
        self._scores: dict[str, Score] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for line in lines:
            entry = json.loads(line)
            key = entry.pop("study")
            if entry["method"] not in again:
                self._scores[key] = Score(**entry)

    def holds(self, study: Study) -> bool:
        """Whether a study was run before on the same problem."""
        return _key(study) in self._scores

    def score(self, study: Study) -> Score:
        """The study's score, run now where it is not held."""
        key = _key(study)
        if key not in self._scores:
            score = self._scores[key] = run(*study)
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"study": key, **score.to_json()}) + "\n")
        return self._scores[key]


def _key(study: Study) -> str:
    problem, method, launches, seed = study
    weighed = digest([problem.digest(), DEFINITION])
    return f"{problem.number} {weighed} {method.name} {launches} {seed}"
