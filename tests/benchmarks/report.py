"""Seconds and size of the report of a study of 500 trials: `python tests/benchmarks/report.py`.

Everything is timed in one process: reading the study back (its database and 500 folders), the HTML, the other
formats. The study is made, not measured.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from made_studies import make_study

from tuner.report.files import FORMATS, render_report
from tuner.study import read_study

TRIALS = 500
T = TypeVar("T")


def timed(what: str, work: Callable[[], T]) -> T:
    """Do it and say how long it took."""
    began_s = time.perf_counter()
    done = work()
    size = f"  {len(done) / 1e6:.2f} MB" if isinstance(done, str) else ""
    print(f"{what:28s} {time.perf_counter() - began_s:6.2f} s{size}")
    return done


def main() -> None:
    """Make the study and report on it."""
    with tempfile.TemporaryDirectory() as folder:
        place = make_study(Path(folder), "large", kinds=("o" + "ksscsrssks" * (TRIALS // 10))[:TRIALS])
        study = timed(f"read {TRIALS} trials", lambda: read_study(place))
        for name in FORMATS:
            timed(name, lambda name=name: render_report(study, name))


if __name__ == "__main__":
    main()
