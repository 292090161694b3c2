"""Measurement: does a replay meet the SLO, and how much load does a configuration carry."""

from tuner.measure.capacity import STEP, Capacity, LoadGrid, Measure, Probe, find_capacity
from tuner.measure.loadtest import USERS_SERIES, LoadTest, Send, UsersCapacity
from tuner.measure.percentile import MIN_REQUESTS, interval_ranks, nearest_rank, p99_interval
from tuner.measure.summary import achieved, finite, summarize
from tuner.measure.verdict import GUARD, Judgement, Verdict, attainment, curtailment, guarded, judge

__all__ = [
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
    "curtailment",
    "find_capacity",
    "finite",
    "guarded",
    "interval_ranks",
    "judge",
    "nearest_rank",
    "p99_interval",
    "summarize",
]
