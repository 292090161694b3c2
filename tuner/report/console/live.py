"""A live view on a terminal: progress, what is going on, and the best configurations so far."""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tuner.measure import Capacity, Judgement
from tuner.report.console.doubts import doubt
from tuner.report.console.phases import PhaseClock, ReplayView
from tuner.report.console.plan import SIMULATED, plan_lines
from tuner.report.console.trials import best_table
from tuner.report.words import changes, rate, seconds
from tuner.space.config import LaunchConfig
from tuner.study.records import Plan, TrialRecord, TuneResult

_REDRAWN = 4
"""Times a second: enough to see it move, little enough for a slow line."""


class LiveObserver:
    """One progress bar, two lines on what is going on, and the table of the best so far, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._records: list[TrialRecord] = []
        self._baseline: TrialRecord | None = None
        self._what = ""
        self._phase = ""
        self._last = ""
        self._banner = ""
        self._phases, self._replay = PhaseClock(), ReplayView()
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

    def view(self) -> Group:
        """What is on the screen now."""
        now = self._phases.said(self._phase) if self._phase else self._last
        parts = [Text(self._banner, style="yellow")] if self._banner else []
        lines = [
            Text(text, style="dim", no_wrap=True, overflow="ellipsis") for text in (self._what, f"  {now}")
        ]
        return Group(*parts, self._progress, *lines, best_table(self._records, self._baseline))

    def planned(self, plan: Plan) -> None:
        for line in plan_lines(plan):
            self._console.print(Text(line))
        self._banner = SIMULATED if plan.engine == "sim" else ""
        self._replay.limit_s = plan.slo.get("e2e_p99_s")
        self._progress.update(self._task, total=plan.trials + plan.finals)
        self._live = Live(console=self._console, refresh_per_second=_REDRAWN, get_renderable=self.view)
        self._live.start()

    def stop(self) -> None:
        """Stop drawing and leave the last view on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None:
        self._begin(f"trial {number + 1} ({origin}): {changes(config)}")

    def _begin(self, what: str) -> None:
        self._what, self._phase, self._last = what, "", ""

    def note(self, text: str) -> None:
        self._console.print(Text(f"note: {text}"))

    def phase(self, text: str) -> None:
        self._phases.phase(text)
        self._phase = text

    def replay_progress(self, done: int, planned: int) -> None:
        self._phases.end()
        self._replay.progress(done, planned)
        self._phase, self._last = "", self._replay.said()

    def replay_latency(self, p99_s: float) -> None:
        self._replay.latency(p99_s)

    def replayed(self, rps: float, judgement: Judgement) -> None:
        if note := doubt(rps, judgement):
            self._console.print(Text(note))
        self._phase = ""
        self._last = f"{rate(rps)} requests/s: {judgement.verdict.value}, P99 {seconds(judgement.p99_s)}"

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        self._phases.end()
        self._phases.end(f"trial {record.number + 1}")
        self._records.append(record)
        if record.number == 0:
            self._baseline = record
        self._progress.advance(self._task)

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None:
        self._progress.update(self._task, description="finals")
        self._begin(f"final {index}/{total}: {label}")

    def final_finished(self, label: str, capacity: Capacity) -> None:
        self._progress.advance(self._task)

    def finished(self, result: TuneResult) -> None:
        self._progress.update(self._task, completed=self._progress.tasks[0].total or 0)
        self._begin("")
