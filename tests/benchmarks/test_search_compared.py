"""Ours beats random search and plain TPE, on fixed seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent))

from search_parts.developing import DEVELOPING  # noqa: E402
from search_parts.methods import METHODS  # noqa: E402
from search_parts.score import run  # noqa: E402

LAUNCHES = 5
COMPARED = [p for p in DEVELOPING if p.number == 5]


def test_ours_beats_random_search_and_plain_tpe() -> None:
    """By what the exported configuration carries in truth; whether its load keeps the SLO is the finals'."""
    lost = {}
    for name in ("random", "tpe", "ours"):
        scores = [run(problem, METHODS[name], LAUNCHES, 0) for problem in COMPARED]
        lost[name] = mean(1.0 - score.true_rps / score.best_rps for score in scores)
    assert lost["ours"] < min(lost["random"], lost["tpe"])
