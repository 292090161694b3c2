"""Which part of the trace the search sees, and which the finals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.errors import BadRequest
from tuner.spec import LoadMode
from tuner.traces import Trace, window

SEARCH_WINDOW = (0.0, 0.5)
FINALS_WINDOW = (0.5, 1.0)
WHOLE = (0.0, 1.0)
MIN_REQUESTS = 20
"""A window with fewer requests says too little about arrivals: search and finals then share the trace."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The two parts, and the fractions of the trace that they are."""

    search: Trace
    finals: Trace
    finals_span: tuple[float, float]
    note: str = ""


def split(trace: Trace, load: LoadMode = LoadMode.RATE) -> Windows:
    """The search's and the finals' part of a trace.

    Raises:
        BadRequest: the trace is empty, or has no rate where one is needed.
    """
    if not len(trace):
        raise BadRequest("the trace holds no requests", "give one with --trace")
    if load is LoadMode.RATE and not (len(trace) > 1 and trace.duration_s > 0):
        raise BadRequest(
            "the trace's requests all arrive at once, so it has no rate to scale",
            "give a trace with arrival times, or use --load users",
        )
    if trace.duration_s > 0:
        search, finals = window(trace, *SEARCH_WINDOW), window(trace, *FINALS_WINDOW)
        if min(len(search), len(finals)) >= MIN_REQUESTS and all(
            math.isfinite(part.rate_rps) for part in (search, finals)
        ):
            return Windows(search, finals, FINALS_WINDOW)
    note = f"{len(trace)} requests are too few to hold a part back: search and finals use the whole trace"
    return Windows(trace, trace, WHOLE, note)
