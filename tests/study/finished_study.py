"""A study on the toy engine that has ended, for tests that only look at it."""

from __future__ import annotations

from pathlib import Path

from toy import ToyEngine, Watcher, make_job

from tuner.study import Job, StudyPlace, TuneResult, tune


class Done:
    """A study of 12 trials that has ended; only looked at."""

    def __init__(self, root: Path) -> None:
        self.place = StudyPlace("toy", root)
        self.engine = ToyEngine()
        self.watcher = Watcher()
        self.job: Job = make_job(self.engine, trials=12)
        self.result: TuneResult = tune(self.job, self.place, self.watcher)
