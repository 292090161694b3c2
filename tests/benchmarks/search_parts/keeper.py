"""Studies that were run before, in a file of JSON lines: a comparison can be made in parts, be interrupted,
and be shared by processes that run side by side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from search_parts.longrun import DEFINITION
from search_parts.methods import Method
from search_parts.problem import Problem
from search_parts.score import Score, run
from tuner.spec import digest

Study = tuple[Problem, Method, int, int]
"""Problem, method, launches, seed."""


class Keeper:
    """Scores by study; without a file nothing is kept.

    Args:
        path: the file. What other processes add to it is seen before the next study begins.
        again: methods whose studies in it are run anew.
        search: runs a study.
    """

    def __init__(
        self, path: Path | None, again: Iterable[str] = (), search: Callable[..., Score] = run
    ) -> None:
        self._path, self._search = path, search
        self._scores: dict[str, Score] = {}
        self._read = 0
        names = set(again)
        self._look()
        self._scores = {key: score for key, score in self._scores.items() if score.method not in names}

    def holds(self, study: Study) -> bool:
        """Whether a study was run before on the same problem."""
        return _key(study) in self._scores

    def score(self, study: Study) -> Score:
        """The study's score, run now where it is not held."""
        key = _key(study)
        if key not in self._scores:
            self._look()
        if key not in self._scores:
            score = self._scores[key] = self._search(*study)
            self._keep({"study": key, **score.to_json()})
        return self._scores[key]

    def _look(self) -> None:
        if self._path is None or not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        ended = new.rfind(b"\n") + 1  # the rest is being written, or was when its writer was killed
        self._read += ended
        for line in new[:ended].splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            key = entry.pop("study")
            self._scores[key] = Score(**entry)

    def _keep(self, entry: dict[str, object]) -> None:
        """One write, after a line end: a line that was cut short stays a line of its own."""
        if self._path is not None:
            with self._path.open("ab", buffering=0) as file:
                file.write(b"\n" * self._cut_short() + json.dumps(entry).encode() + b"\n")

    def _cut_short(self) -> bool:
        assert self._path is not None
        so_far = self._path.read_bytes() if self._path.exists() else b""
        return bool(so_far) and not so_far.endswith(b"\n")


def _key(study: Study) -> str:
    problem, method, launches, seed = study
    weighed = digest([problem.digest(), DEFINITION])
    return f"{problem.number} {weighed} {method.name} {launches} {seed}"
