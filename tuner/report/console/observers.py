"""Who watches a study on a screen: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tuner.measure import Capacity, Judgement, Verdict
from tuner.measure.server_side import server_side
from tuner.report.console.plan import SIMULATED, plan_lines
from tuner.report.console.trials import best_table, trial_line
from tuner.report.words import changes, rate, seconds
from tuner.space.config import LaunchConfig
from tuner.study.records import Observer, Plan, TrialRecord, TuneResult

SAME_PHASE_S = 30.0


class PlainObserver:
    """One plain line an event: CI logs, pipes, dumb terminals."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._trials = 0
        self._phase = ""
        self._final = ""
        self._said_s = 0.0

    def _line(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def planned(self, plan: Plan) -> None:
        self._trials = plan.trials
        for line in plan_lines(plan):
            self._line(line)

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None:
        if self._verbose:
            self._line(f"trial {number + 1}/{self._trials} ({origin}): {changes(config)}")

    def note(self, text: str) -> None:
        self._line(f"note: {text}")

    def phase(self, text: str) -> None:
        """A new phase at once; news of the same one every half minute."""
        name, now_s = text.partition(":")[0], time.monotonic()
        if self._verbose and (name != self._phase or now_s - self._said_s >= SAME_PHASE_S):
            self._phase, self._said_s = name, now_s
            self._line(f"  {text}")

    def replay_progress(self, done: int, planned: int) -> None:
        pass

    def replayed(self, rps: float, judgement: Judgement) -> None:
        if note := _doubt(rps, judgement):
            self._line(note)
        elif self._verbose:
            self._line(f"  {rate(rps)} requests/s: {judgement.verdict.value}, P99 {seconds(judgement.p99_s)}")

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        self._line(trial_line(record, self._trials))

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None:
        self._final = changes(config)
        if self._verbose:
            self._line(f"final {index}/{total}: {label}")

    def final_finished(self, label: str, capacity: Capacity) -> None:
        self._line(f"final        {rate(capacity.rps)} requests/s  {label}: {self._final}")

    def finished(self, result: TuneResult) -> None:
        pass


class LiveObserver:
    """One progress bar and the table of the best configurations so far, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._records: list[TrialRecord] = []
        self._baseline: TrialRecord | None = None
        self._now = ""
        self._banner = ""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("search", total=1)
        self._live: Live | None = None

    def _view(self) -> Group:
        parts = [Text(self._banner, style="yellow")] if self._banner else []
        return Group(*parts, self._progress, Text(self._now, style="dim", no_wrap=True, overflow="ellipsis"),
                     best_table(self._records, self._baseline))  # fmt: skip

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._view())

    def planned(self, plan: Plan) -> None:
        for line in plan_lines(plan):
            self._console.print(Text(line))
        self._banner = SIMULATED if plan.engine == "sim" else ""
        self._progress.update(self._task, total=plan.trials + plan.finals)
        self._live = Live(self._view(), console=self._console, refresh_per_second=8)
        self._live.start()

    def stop(self) -> None:
        """Stop drawing and leave the last view on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None:
        self._now = f"trial {number + 1} ({origin}): {changes(config)}"
        self._refresh()

    def note(self, text: str) -> None:
        self._console.print(Text(f"note: {text}"))

    def phase(self, text: str) -> None:
        self._now = f"{self._now.split(' | ')[0]} | {text}"
        self._refresh()

    def replay_progress(self, done: int, planned: int) -> None:
        self.phase(f"{done:,} of {planned:,} requests")

    def replayed(self, rps: float, judgement: Judgement) -> None:
        if note := _doubt(rps, judgement):
            self._console.print(Text(note))
        self.phase(f"{rate(rps)} requests/s: {judgement.verdict.value}, P99 {seconds(judgement.p99_s)}")

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        self._records.append(record)
        if record.number == 0:
            self._baseline = record
        self._progress.advance(self._task)
        self._refresh()

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None:
        self._progress.update(self._task, description="finals")
        self._now = f"final {index}/{total}: {label}"
        self._refresh()

    def final_finished(self, label: str, capacity: Capacity) -> None:
        self._progress.advance(self._task)
        self._refresh()

    def finished(self, result: TuneResult) -> None:
        self._progress.update(self._task, completed=self._progress.tasks[0].total or 0)
        self._refresh()


def _doubt(rps: float, judgement: Judgement) -> str | None:
    """Said whoever watches: a replay that proves nothing (a capacity below such a load is the client's and
    not the server's), and one that the server counted otherwise.
    """
    if judgement.verdict is Verdict.INVALID:
        return f"replay at {rate(rps)} requests/s INVALID: {judgement.reason}"
    server = server_side(judgement.replay)
    return f"replay at {rate(rps)} requests/s: {server.mismatch}" if server and server.mismatch else None


@contextmanager
def watching(console: Console, *, verbose: bool = False, quiet: bool = False) -> Iterator[Observer]:
    """The live view on a terminal, plain lines elsewhere or with `verbose`, nothing with `quiet`.

    Drawing ends with the block.
    """
    if quiet:
        yield PlainObserver(Console(quiet=True))
        return
    if not console.is_terminal or verbose:
        yield PlainObserver(console, verbose=verbose)
        return
    live = LiveObserver(console)
    try:
        yield live
    finally:
        live.stop()
