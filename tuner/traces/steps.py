"""Timestamps that come in steps: seen, said, and spread on request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.errors import BadRequest
from tuner.traces.changes import changed
from tuner.traces.trace import Trace

COARSE_S = 0.5
_JITTER_S = 0.0025


def time_step_s(trace: Trace) -> float | None:
    """The step in seconds that the arrivals come in, None where it is under COARSE_S or there is none.

    Either all times are whole multiples of it, or nearly all gaps between different times are multiples of
    the usual one but for a millisecond of jitter (Mooncake's 3 s).
    """
    ns = np.rint(trace.arrival_s * 1e9).astype(np.int64)
    gaps = np.diff(ns)
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return None
    whole = int(np.gcd.reduce(gaps))
    if whole >= COARSE_S * 1e9:
        return whole / 1e9
    usual = round(float(np.median(gaps)) / 1e9, 2)
    if usual < COARSE_S or len(gaps) < 10:
        return None
    off = np.abs(gaps / 1e9 - np.rint(gaps / 1e9 / usual) * usual)
    return usual if np.mean(off <= _JITTER_S) > 0.95 else None


def step_note(trace: Trace) -> str | None:
    """A sentence for the user where timestamps are coarse."""
    step = time_step_s(trace)
    if step is None:
        return None
    at_once = len(trace) / len(np.unique(trace.arrival_s))
    crowd = f", {at_once:.1f} requests at once on average" if at_once >= 1.05 else ""
    return f"timestamps come in steps of {step:g} s{crowd}; they can be spread evenly over the step"


def spread_steps(trace: Trace) -> Trace:
    """The trace with the requests of each step spread evenly over it; recorded in `source.changes`.

    Raises:
        BadRequest: the timestamps do not come in steps.
    """
    step = time_step_s(trace)
    if step is None:
        raise BadRequest("the trace's timestamps do not come in steps", "use it as it is")
    _, first, counts = np.unique(trace.arrival_s, return_index=True, return_counts=True)
    rank = np.arange(len(trace)) - np.repeat(first, counts)
    arrival = trace.arrival_s + step * rank / np.repeat(counts, counts)
    order = np.argsort(arrival, kind="stable")
    spread = trace.take(order)
    spread = replace(spread, arrival_s=arrival[order] - arrival[order[0]])
    return changed(spread, trace, change="spread-steps", step_s=step)
