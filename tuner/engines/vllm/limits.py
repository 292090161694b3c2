"""How long each part of a server's life may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds.

    `standstill_s` is start-up without a log line and without CPU time, `replay_standstill_s` a replay in
    which the server computes no token, `grace_s` SIGTERM to SIGKILL, `memory_s` the wait for the GPU's
    memory.
    """

    startup_s: float = 1800.0
    standstill_s: float = 120.0
    replay_standstill_s: float = 120.0
    grace_s: float = 20.0
    memory_s: float = 60.0
    poll_s: float = 0.2
