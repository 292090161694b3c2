"""Replay: send a trace to a server and record what comes back."""

from tuner.replay.records import Replay, Status, Workload
from tuner.replay.stop import Curtailment, OverWatch

__all__ = ["Curtailment", "OverWatch", "Replay", "Status", "Workload"]
