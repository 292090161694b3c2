"""Changes to a trace, each recorded in its source with the dispersion before and after."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.errors import BadRequest
from tuner.traces.dispersion import dispersion
from tuner.traces.sessions import numbered
from tuner.traces.trace import Trace


def changed(after: Trace, before: Trace, **what: Any) -> Trace:
    """`after`, its source saying what was done to `before`."""
    record = {
        **what,
        "dispersion_before": dispersion(before.arrival_s),
        "dispersion_after": dispersion(after.arrival_s),
    }
    return replace(after, source=replace(before.source, changes=(*before.source.changes, record)))


def compress_time(trace: Trace, factor: float) -> Trace:
    """The trace `factor` times as fast (below 1: slower), gaps in proportion. It keeps the CV of gaps and
    makes bursts longer in requests, which is why loads are scaled by copies and thinning unless asked.

    Raises:
        BadRequest: the factor is not a number above 0.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise BadRequest(f"time cannot be compressed {factor:g} times", "give a factor above 0")
    return changed(
        replace(trace, arrival_s=trace.arrival_s / factor), trace, change="compress-time", factor=factor
    )


def window(trace: Trace, low: float, high: float) -> Trace:
    """The requests that arrive within these fractions of the trace's duration (`high` 1 takes in the last
    one), arrivals moved to begin at 0, sessions renumbered. Where all arrive at once, fractions of the
    requests.

    Raises:
        BadRequest: not 0 <= low < high <= 1, or no request there.
    """
    if not 0 <= low < high <= 1:
        raise BadRequest(f"window {low:g} to {high:g} of the trace", "give fractions, 0 <= low < high <= 1")
    if trace.duration_s > 0:
        place = (trace.arrival_s - trace.arrival_s[0]) / trace.duration_s
    else:
        place = np.arange(len(trace)) / max(len(trace), 1)
    inside = (place >= low) & ((place < high) | (high == 1))
    indices = np.flatnonzero(inside)
    if not len(indices):
        raise BadRequest(f"no request between {low:.0%} and {high:.0%} of the trace", "take a wider window")
    part = trace.take(indices)
    session = numbered(part.session)
    part = replace(part, arrival_s=part.arrival_s - part.arrival_s[0], session=session)
    return changed(part, trace, change="window", low=low, high=high)
