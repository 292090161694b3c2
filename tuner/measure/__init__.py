"""Measurement: does a replay meet the SLO, and how much load does a configuration carry."""

from tuner.measure.bootstrap import DRAWS, block_bootstrap, block_length, p99_rows
from tuner.measure.capacity import STEP, Capacity, LoadGrid, Measure, Probe, find_capacity
from tuner.measure.interpolate import isotonic, load_at_limit
from tuner.measure.loadtest import USERS_SERIES, LoadTest, Send, UsersCapacity
from tuner.measure.percentile import MIN_REQUESTS, interval_ranks, nearest_rank, p99_interval
from tuner.measure.summary import achieved, finite, summarize
from tuner.measure.verdict import GUARD, Judgement, Verdict, attainment, curtailment, guarded, judge

__all__ = [
    "DRAWS",
    "GUARD",
    "MIN_REQUESTS",
    "STEP",
    "USERS_SERIES",
    "Capacity",
    "Judgement",
    "LoadGrid",
    "LoadTest",
    "Measure",
    "Probe",
    "Send",
    "UsersCapacity",
    "Verdict",
    "achieved",
    "attainment",
    "block_bootstrap",
    "block_length",
    "curtailment",
    "find_capacity",
    "finite",
    "guarded",
    "interval_ranks",
    "isotonic",
    "judge",
    "load_at_limit",
    "nearest_rank",
    "p99_interval",
    "p99_rows",
    "summarize",
]
