"""How bursty arrivals are: the index of dispersion of counts, and the variation of the gaps."""

from __future__ import annotations

import numpy as np

from tuner.traces.trace import F64

AT_ONCE_S = 1e-9
"""Arrivals within less than a nanosecond, the finest time that is read, are taken to be at once."""


def index_of_dispersion(arrival_s: F64, window_s: float) -> float:
    """Variance over mean of the number of arrivals in windows of `window_s` seconds: 1 for Poisson arrivals,
    more for bursts; NaN where fewer than two whole windows fit.
    """
    if len(arrival_s) < 2:
        return float("nan")
    span = float(arrival_s[-1] - arrival_s[0])
    windows = int(span / window_s)
    if windows < 2:
        return float("nan")
    if windows > 10 * len(arrival_s) + 1000:
        return _sparse_dispersion(arrival_s, window_s, windows)
    counts = np.bincount(((arrival_s - arrival_s[0]) / window_s).astype(np.int64))[:windows]
    mean = counts.mean()
    return float(counts.var() / mean) if mean > 0 else float("nan")


def _sparse_dispersion(arrival_s: F64, window_s: float, windows: int) -> float:
    """The same from the windows that hold anything, for spans too long to count in full."""
    at = np.floor((arrival_s - arrival_s[0]) / window_s)
    _, counts = np.unique(at[at < windows], return_counts=True)
    mean = float(counts.sum()) / windows
    return (float((counts.astype(float) ** 2).sum()) / windows - mean**2) / mean if mean > 0 else float("nan")


def cv_of_gaps(arrival_s: F64) -> float:
    """Standard deviation over mean of the gaps between arrivals: 1 for Poisson arrivals; NaN where there is
    no gap.
    """
    gaps = np.diff(arrival_s)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return float(gaps.std() / mean) if mean * len(gaps) >= AT_ONCE_S else float("nan")


def dispersion(arrival_s: F64) -> dict[str, float | None]:
    """`iod_1s`, `iod_60s` and `cv_gaps`, rounded; None where undefined."""
    figures = {
        "iod_1s": index_of_dispersion(arrival_s, 1.0),
        "iod_60s": index_of_dispersion(arrival_s, 60.0),
        "cv_gaps": cv_of_gaps(arrival_s),
    }
    return {name: round(value, 3) if np.isfinite(value) else None for name, value in figures.items()}
