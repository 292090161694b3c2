"""One plain line an event: CI logs, pipes, dumb terminals."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from tuner.measure import Capacity, Judgement
from tuner.report.console.doubts import doubt
from tuner.report.console.phases import PhaseClock, ReplayView
from tuner.report.console.plan import plan_lines
from tuner.report.console.trials import trial_line
from tuner.report.words import changes, rate, seconds
from tuner.space.config import LaunchConfig
from tuner.study.records import Plan, TrialRecord, TuneResult

SAME_PHASE_S = 30.0
QUIET_S = 60.0
"""A log that says nothing for so long gets a line on what is going on."""


class PlainObserver:
    """Says what has ended; with `verbose` what begins too; once a minute what is going on."""

    def __init__(
        self, console: Console, *, verbose: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._clock = clock
        self._trials = 0
        self._phase = ""
        self._what = ""
        self._final = ""
        self._spoke_s = self._said_s = clock()
        self._phases, self._replay = PhaseClock(clock), ReplayView()

    def _line(self, text: str) -> None:
        self._spoke_s = self._clock()
        self._console.print(Text(text), soft_wrap=True)

    def _going_on(self, text: str) -> None:
        if self._clock() - self._spoke_s >= QUIET_S:
            self._line(f"  {self._what}: {text}" if self._what else f"  {text}")

    def planned(self, plan: Plan) -> None:
        self._trials = plan.trials
        self._replay.limit_s = plan.slo.get("e2e_p99_s")
        for line in plan_lines(plan):
            self._line(line)

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None:
        self._what = f"trial {number + 1}"
        if self._verbose:
            self._line(f"trial {number + 1}/{self._trials} ({origin}): {changes(config)}")

    def note(self, text: str) -> None:
        self._line(f"note: {text}")

    def phase(self, text: str) -> None:
        """A new phase at once; news of the same one every half minute."""
        self._phases.phase(text)
        name, now_s = text.partition(":")[0], self._clock()
        if self._verbose and (name != self._phase or now_s - self._said_s >= SAME_PHASE_S):
            self._phase, self._said_s = name, now_s
            self._line(f"  {self._phases.said(text)}")
        else:
            self._going_on(self._phases.said(text))

    def replay_progress(self, done: int, planned: int) -> None:
        self._phases.end()
        self._replay.progress(done, planned)
        self._going_on(self._replay.said())

    def replay_latency(self, p99_s: float) -> None:
        self._replay.latency(p99_s)

    def replayed(self, rps: float, judgement: Judgement) -> None:
        if note := doubt(rps, judgement):
            self._line(note)
        elif self._verbose:
            self._line(f"  {rate(rps)} requests/s: {judgement.verdict.value}, P99 {seconds(judgement.p99_s)}")

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        self._phases.end()
        self._phases.end(f"trial {record.number + 1}")
        self._line(trial_line(record, self._trials))

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None:
        self._final, self._what = changes(config), f"final {index}/{total}"
        if self._verbose:
            self._line(f"final {index}/{total}: {label}")

    def final_finished(self, label: str, capacity: Capacity) -> None:
        self._line(f"final        {rate(capacity.rps)} requests/s  {label}: {self._final}")

    def finished(self, result: TuneResult) -> None:
        pass
