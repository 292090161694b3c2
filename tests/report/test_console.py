"""The screen: a live view on a terminal, plain lines elsewhere, nothing wider than the screen."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tuner.engines.base import FailureKind, Outcome
from tuner.measure import judge
from tuner.profiles import Measured, UsersRow
from tuner.replay import Replay
from tuner.report.console import LiveObserver, PlainObserver, print_result, watching
from tuner.report.console.phases import PhaseClock
from tuner.report.results import result_object
from tuner.space import LaunchConfig
from tuner.spec import Slo
from tuner.study import Plan, TrialRecord, TuneResult

PLAN = Plan(
    study="a", engine="sim", gpu="A100-80G", model="m", vllm_version="0.21.0", slo={"e2e_p99_s": 30.0},
    trace="the trace that ships", trace_notes=(), requests=1000, trace_rps=1.67, replay_s=600, launch_s=60,
    trials=2, finals=3, engine_s=7200, parameters={"max-num-seqs": "16 to 1024"}, fixed={},
    feasible_share=0.9, coverage={8192: 0.997}, sampler="TPE",
)  # fmt: skip
BASELINE = TrialRecord(0, "vllm-default", LaunchConfig(), Outcome.OK, 4.0, 20.0, 30.0)
BETTER = TrialRecord(
    1,
    "sampler",
    LaunchConfig.of({"max-num-seqs": 64}),
    Outcome.OK,
    5.0,
    25.0,
    30.0,
    changed={"max-num-seqs": 64},
)
CRASHED = TrialRecord(
    2, "sampler", LaunchConfig(), Outcome.CRASH, 0.0, failure=FailureKind.KV_MEMORY, cause="no room for KV"
)
MEASURED = Measured(
    LaunchConfig.of({"max-num-seqs": 64}), ("vllm", "serve", "m", "--max-num-seqs", "64"), 5.0, 1300.0, 25.0,
    (24.0, 27.0), 6.0, 40, 1_000_000, 60.0,
)  # fmt: skip
RESULT = TuneResult(
    study="a", engine="sim", gpu="A100-80G", model="m", slo={"e2e_p99_s": 30.0}, recommendation="tuned",
    winner=MEASURED, baseline=replace(MEASURED, flags=LaunchConfig(), throughput_rps=4.0), gain=1.25,
    trials={"ok": 2, "slo": 0, "crash": 1, "refused": 0, "machine": 0}, launches=6, engine_seconds=7200.0,
    profile=None, users_table=(UsersRow(10, 3.0, 12.0, 2.5, 11.0), UsersRow(50, None, None, 9.0, 29.0)),
)  # fmt: skip


def screen(*, terminal: bool, width: int = 80) -> Console:
    """A console that writes into memory."""
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, markup=False)


def written(console: Console) -> str:
    """All that was written."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def watch(console: Console, **options: bool) -> str:
    """Show a small study."""
    with watching(console, **options) as observer:
        observer.planned(PLAN)
        for record in (BASELINE, BETTER, CRASHED):
            observer.trial_started(record.number, record.origin, record.config)
            observer.phase("loading the weights")
            observer.replay_progress(10, 1000)
            observer.replay_latency(12.3)
            observer.trial_finished(record, BETTER)
        observer.final_started("default", LaunchConfig(), 1, 3)
        observer.finished(RESULT)
    return written(console)


def test_without_a_terminal_every_event_is_a_plain_line() -> None:
    text = watch(screen(terminal=False))
    assert "\x1b" not in text
    lines = text.splitlines()
    assert any(line.startswith("trial 1/2") and "4.00 requests/s" in line for line in lines)
    assert any("max-num-seqs=64" in line for line in lines)
    assert any("cannot start (kv_memory): no room for KV" in line for line in lines)
    assert "99.7%" in text and "SIMULATED" in text


def test_on_a_terminal_the_best_are_a_table() -> None:
    text = watch(screen(terminal=True))
    assert "against the default" in text and "vLLM's defaults" in text
    assert "SIMULATED" in text


class Clock:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_phase_says_what_to_expect_from_earlier_launches() -> None:
    clock = Clock()
    phases = PhaseClock(clock)
    for took_s in (38.0, 40.0, 55.0):
        phases.phase("loading the weights")
        clock.now_s += took_s
        phases.phase("compiling: no log line for 20 s")
        clock.now_s += 0.2
        phases.end()
    phases.phase("loading the weights")
    clock.now_s += 12.0
    assert phases.said("loading the weights") == "loading the weights, 12 s of about 40 s"
    phases.phase("trial 3: loading the weights")
    clock.now_s += 5.0
    assert phases.said("trial 3: loading the weights") == "trial 3: loading the weights, 5 s of about 40 s"
    assert phases.said("loading the weights") == "loading the weights, 17 s of about 40 s"


def test_a_log_hears_of_a_long_replay_once_a_minute() -> None:
    clock, console = Clock(), screen(terminal=False)
    observer = PlainObserver(console, clock=clock)
    observer.planned(PLAN)
    observer.trial_started(3, "sampler", LaunchConfig())
    for done in range(0, 1000, 10):
        clock.now_s += 2.0
        observer.replay_progress(done, 1000)
        observer.replay_latency(12.34)
    told = [line for line in written(console).splitlines() if "P99 so far" in line]
    assert len(told) == 3
    assert told[0] == "  trial 4: 290 of 1,000 requests, P99 so far 12.3 s of 30 s"


def test_the_live_view_shows_the_running_p99_and_fits_80_columns() -> None:
    console = screen(terminal=True)
    observer = LiveObserver(console)
    observer.planned(PLAN)
    observer.stop()
    observer.trial_started(1, "sampler", LaunchConfig.of({f"a-long-flag-{n}": n for n in range(30)}))
    observer.replay_progress(411, 1000)
    observer.replay_latency(26.2)
    observer.replay_progress(412, 1000)
    observer.trial_finished(BETTER, BETTER)
    shown = screen(terminal=False)
    shown.print(observer.view())
    lines = written(shown).splitlines()
    assert "  412 of 1,000 requests, P99 so far 26.2 s of 30 s" in (line.rstrip() for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = screen(terminal=True)
    print_result(RESULT, console)
    assert "\x1b[3" not in written(console) and "\x1b[9" not in written(console)


def test_quiet_says_nothing() -> None:
    assert watch(screen(terminal=False), quiet=True) == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_recommendation_fits_the_screen_but_for_the_command(width: int) -> None:
    console = screen(terminal=False, width=width)
    print_result(RESULT, console)
    text = written(console)
    assert "+25%" in text and "vllm serve m --max-num-seqs 64" in text and "concurrent users" in text
    assert all(len(line) <= width for line in text.splitlines() if "vllm serve" not in line)


def test_the_default_and_nothing_are_said_plainly() -> None:
    console = screen(terminal=False)
    print_result(replace(RESULT, recommendation="default", winner=RESULT.baseline, gain=1.0), console)
    assert "Keep the defaults" in written(console)
    console = screen(terminal=False)
    none = replace(RESULT, recommendation="none", winner=None, gain=None, closest="the closest: …")
    print_result(none, console)
    assert "No configuration tried meets the SLO" in written(console)
    assert "the closest" in written(console)
    assert result_object(none)["winner"] is None


@pytest.mark.parametrize("terminal", [True, False])
def test_an_invalid_replay_is_always_said(terminal: bool) -> None:
    n = 400
    replay = Replay(
        *(np.zeros(n) for _ in range(4)),
        *(np.ones(n, np.int32) for _ in range(4)),
        status=np.zeros(n, np.int8),
        offered_rps=4.6,
        engine_s=90.0,
        invalid_reason="the client was the bottleneck",
    )
    console = screen(terminal=terminal)
    with watching(console) as observer:
        observer.planned(PLAN)
        observer.replayed(4.6, judge(replay, Slo(e2e_p99_s=5.0)))
    assert "replay at 4.60 requests/s INVALID: the client was the bottleneck" in written(console)
