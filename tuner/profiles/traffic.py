"""What a trace was like, in figures that two traces of any length can be compared by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.profiles.profile import Measured
from tuner.traces.dispersion import cv_of_gaps, index_of_dispersion
from tuner.traces.inspection import prefix_reuse
from tuner.traces.trace import Trace

PARTS = 20
"""Contiguous parts of a trace whose spread says how sure its figures are."""
REUSE_REQUESTS = 500
"""Prefix reuse grows with the length of a trace, so it is the mean over stretches of so many requests."""
BURST_WINDOW_S = 60.0
QUANTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}


def traffic_of(trace: Trace, measured: Measured | None = None) -> dict[str, Any]:
    """The figures of a trace: `requests`, `duration_s`, `rate_rps`, `input_tokens` and `output_tokens` (mean
    and percentiles), `prefix_reuse` (share of the prompt tokens, over stretches of 500 requests), `cv_gaps`,
    and `rate_cv`, the variation of the rate from minute to minute beyond chance. A key with `_se` behind it
    holds a figure's standard error. What the trace does not say is None. With a measured configuration also
    `over_max_model_len`: the share of the requests that it would reject.
    """
    if not len(trace):
        return {"requests": 0}
    rate = trace.rate_rps
    figures: dict[str, Any] = {
        "requests": len(trace),
        "duration_s": round(trace.duration_s, 3),
        "rate_rps": _rounded(rate),
        "rate_rps_se": _rounded(_rate_se(trace)),
    }
    for name, column in (("input_tokens", trace.input_tokens), ("output_tokens", trace.output_tokens)):
        figures[name] = _lengths(column)
    figures["prefix_reuse"], figures["prefix_reuse_se"] = _reuse(trace)
    figures["cv_gaps"] = _rounded(cv_of_gaps(trace.arrival_s))
    figures["rate_cv"] = _rounded(rate_cv(trace))
    if measured is not None and (length := max_model_len(measured)):
        figures["over_max_model_len"] = _rounded(1.0 - trace.coverage(length))
    return figures


def max_model_len(measured: Measured) -> int | None:
    """The longest request in tokens that a launch takes, where it is known."""
    for values in (measured.flags, measured.effective):
        length = values.get("max-model-len")
        if type(length) is int and length > 0:
            return length
    return None


def rate_cv(trace: Trace) -> float:
    """Standard deviation over mean of the rate between minutes, less what Poisson arrivals show by chance:
    the square root of (index of dispersion - 1) / (mean count). Unlike the index it is the same at any load.
    NaN where fewer than five minutes were recorded.
    """
    if trace.duration_s < 5 * BURST_WINDOW_S:
        return float("nan")
    dispersion = index_of_dispersion(trace.arrival_s, BURST_WINDOW_S)
    return math.sqrt(max(0.0, dispersion - 1.0) / (trace.rate_rps * BURST_WINDOW_S))


def _lengths(tokens: NDArray[np.int32]) -> dict[str, float | None]:
    parts = np.array_split(tokens, min(PARTS, len(tokens)))
    figures: dict[str, float | None] = {
        "mean": _rounded(float(tokens.mean())),
        "mean_se": _rounded(_standard_error([float(part.mean()) for part in parts])),
    }
    for name, cut in QUANTILES.items():
        figures[name] = _rounded(float(np.percentile(tokens, cut)))
        each = [float(np.percentile(part, cut)) for part in parts]
        figures[f"{name}_se"] = _rounded(_standard_error(each))
    return figures


def _reuse(trace: Trace) -> tuple[float | None, float | None]:
    if prefix_reuse(trace) is None or len(trace) < REUSE_REQUESTS:
        return None, None
    count = len(trace) // REUSE_REQUESTS
    stretches = np.array_split(np.arange(count * REUSE_REQUESTS), count)
    shares = [prefix_reuse(trace.take(stretch)) or 0.0 for stretch in stretches]
    return _rounded(float(np.mean(shares))), _rounded(_standard_error(shares))


def _rate_se(trace: Trace) -> float:
    if not math.isfinite(trace.rate_rps):
        return float("nan")
    start = trace.arrival_s[0]
    counts, _ = np.histogram(trace.arrival_s, bins=PARTS, range=(start, start + trace.duration_s))
    return _standard_error([float(count) * PARTS / trace.duration_s for count in counts])


def _standard_error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else float("nan")


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
