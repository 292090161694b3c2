"""Waiting until a server serves: its own model, on its own port, or a failure that says why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.engines.base import FailureKind, Phase
from tuner.engines.vllm import control, diagnose
from tuner.engines.vllm.limits import Limits
from tuner.engines.vllm.log_tail import LogTail
from tuner.engines.vllm.logs import phase_of
from tuner.engines.vllm.standstill import Activity, Standstill

_SAY_SILENT_AFTER_S = 20.0


@dataclass(frozen=True, slots=True)
class Watched:
    """What the wait looks at: the port and name to answer, the log, the exit code, the tree's activity."""

    port: int
    name: str
    log: Path
    poll: Callable[[], int | None]
    activity: Callable[[], Activity]


def wait_ready(watched: Watched, limits: Limits, phase: Phase, started_s: float) -> float:
    """Seconds from `started_s` (monotonic) until /health is 200 and /v1/models names this trial.

    Raises:
        LaunchFailure: it ended, another server answers on the port (PORT), it hung, or the limit passed.
    """
    tail, still = LogTail(watched.log), Standstill(started_s, watched.activity)
    said = "starting"
    phase(said)
    while True:
        now = time.monotonic()
        seconds = now - started_s
        # the exit is read before the log, so that the last lines are there when the failure is read
        code = watched.poll()
        lines = tail.lines()
        still.see(now, spoke=bool(lines))
        found = [mark.phase for line in lines if (mark := phase_of(line))]
        if found and found[-1] != said:
            said = found[-1]
            phase(said)
        if code is not None:
            raise diagnose.exited(watched.log, code, seconds)
        if control.request(watched.port, "/health", timeout_s=1.0)[0] == 200:
            _check_name(watched, seconds)
            return time.monotonic() - started_s
        if still.idle_s > limits.standstill_s:
            raise diagnose.stuck(
                watched.log,
                FailureKind.HUNG,
                f"no log line and no CPU time for {still.idle_s:.0f} s",
                "look at the end of the log",
                seconds,
            )
        if seconds > limits.startup_s:
            raise diagnose.stuck(
                watched.log,
                FailureKind.STARTUP_TIMEOUT,
                f"not ready after {seconds:.0f} s",
                "raise the start-up limit if the model is large or its files lie on a slow disk",
                seconds,
            )
        if still.silent_s > _SAY_SILENT_AFTER_S:
            phase(f"{said}: no log line for {still.silent_s:.0f} s, but the CPU is at work")
        time.sleep(limits.poll_s)


def _check_name(watched: Watched, seconds: float) -> None:
    names = [str(entry.get("id")) for entry in control.models(watched.port)]
    if watched.name not in names:
        raise diagnose.stuck(
            watched.log,
            FailureKind.PORT,
            f"another server answers on port {watched.port}: it serves {', '.join(names) or 'nothing'}",
            "stop it, or try again on another port",
            seconds,
        )
