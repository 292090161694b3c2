"""What a trace looks like: rate over time, lengths, sessions, prefix reuse, bursts, and what fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.traces.dispersion import AT_ONCE_S, dispersion
from tuner.traces.steps import time_step_s
from tuner.traces.trace import I64, Trace

COVERAGE_FROM, COVERAGE_TO = 2048, 1 << 20
RATE_BINS = 60
_PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


@dataclass(frozen=True, slots=True)
class Inspection:
    """Figures of one trace; lengths in tokens, times in seconds, rates in requests a second.

    `rate_over_time` holds (start of a bin, rate within it). `prefix_reuse` is the share of prompt tokens
    that a prefix cache without limit would have seen before; None where the trace does not say.
    `coverage` is the share of requests whose prompt and answer fit a max-model-len. `length_histogram`
    counts prompt + answer by bins whose upper ends grow by a quarter.
    """

    format: str
    path: str | None
    digest: str
    requests: int
    duration_s: float
    rate_rps: float | None
    rate_over_time: tuple[tuple[float, float], ...]
    input_tokens: Mapping[str, float]
    output_tokens: Mapping[str, float]
    total_tokens: Mapping[str, float]
    length_histogram: tuple[tuple[int, int], ...]
    sessions: int
    turns: Mapping[str, float]
    block_tokens: int
    prefix_reuse: float | None
    dispersion: Mapping[str, float | None]
    time_step_s: float | None
    coverage: Mapping[int, float]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]
    changes: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values by the field's names."""
        return {
            "format": self.format,
            "path": self.path,
            "digest": self.digest,
            "requests": self.requests,
            "duration_s": self.duration_s,
            "rate_rps": self.rate_rps,
            "rate_over_time": [list(point) for point in self.rate_over_time],
            "input_tokens": dict(self.input_tokens),
            "output_tokens": dict(self.output_tokens),
            "total_tokens": dict(self.total_tokens),
            "length_histogram": [list(point) for point in self.length_histogram],
            "sessions": self.sessions,
            "turns": dict(self.turns),
            "block_tokens": self.block_tokens,
            "prefix_reuse": self.prefix_reuse,
            "dispersion": dict(self.dispersion),
            "time_step_s": self.time_step_s,
            "coverage": {str(length): share for length, share in self.coverage.items()},
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
            "changes": [dict(change) for change in self.changes],
        }


def inspect(trace: Trace) -> Inspection:
    """The figures of a trace that is not empty."""
    total = trace.input_tokens.astype(np.int64) + trace.output_tokens
    turns = np.bincount(np.unique(trace.session, return_inverse=True)[1])
    rate = trace.rate_rps
    return Inspection(
        format=trace.source.format,
        path=trace.source.path,
        digest=trace.digest(),
        requests=len(trace),
        duration_s=trace.duration_s,
        rate_rps=rate if math.isfinite(rate) else None,
        rate_over_time=_rate_over_time(trace),
        input_tokens=_spread(trace.input_tokens),
        output_tokens=_spread(trace.output_tokens),
        total_tokens=_spread(total),
        length_histogram=_histogram(total),
        sessions=len(turns),
        turns=_spread(turns),
        block_tokens=trace.block_tokens,
        prefix_reuse=prefix_reuse(trace),
        dispersion=dispersion(trace.arrival_s),
        time_step_s=time_step_s(trace),
        coverage=coverage_by_length(trace),
        left_out=dict(trace.source.left_out),
        notes=trace.source.notes,
        changes=trace.source.changes,
    )


def prefix_reuse(trace: Trace) -> float | None:
    """Share of the prompt tokens that came before, in the same blocks behind the same prefix: the hit rate of
    a prefix cache without limit. None where the trace has no prefix information.
    """
    if not trace.block_tokens:
        return None
    prompt = int(trace.input_tokens.astype(np.int64).sum())
    _, first = np.unique(trace.block_ids, return_index=True)
    seen = np.ones(len(trace.block_ids), bool)
    seen[first] = False
    counts = np.diff(trace.block_offsets)
    tokens = np.full(len(trace.block_ids), trace.block_tokens, np.int64)
    last = trace.block_offsets[1:][counts > 0] - 1
    whole_before = (counts[counts > 0] - 1) * trace.block_tokens
    tokens[last] = trace.input_tokens[counts > 0] - whole_before
    return float(tokens[seen].sum() / prompt) if prompt else 0.0


def coverage_by_length(trace: Trace) -> dict[int, float]:
    """Share of the requests that fit, by max-model-len: powers of two up to the first that takes them all."""
    shares: dict[int, float] = {}
    length = COVERAGE_FROM
    while length <= COVERAGE_TO:
        shares[length] = trace.coverage(length)
        if shares[length] == 1.0:
            break
        length *= 2
    return shares


def _rate_over_time(trace: Trace) -> tuple[tuple[float, float], ...]:
    duration = trace.duration_s
    if duration < AT_ONCE_S:
        return ()
    at = trace.arrival_s - trace.arrival_s[0]
    counts, edges = np.histogram(at, bins=min(RATE_BINS, max(1, len(trace) // 5)), range=(0.0, duration))
    width = edges[1] - edges[0]
    return tuple(
        (round(float(edge), 3), round(float(n / width), 4)) for edge, n in zip(edges, counts, strict=False)
    )


def _histogram(total: I64) -> tuple[tuple[int, int], ...]:
    edges = [64]
    while edges[-1] < total.max(initial=1):
        edges.append(max(edges[-1] + 1, round(edges[-1] * 1.25)))
    place = np.searchsorted(np.array(edges), total)
    counts = np.bincount(place, minlength=len(edges))
    filled = int(np.flatnonzero(counts)[0])
    return tuple(zip(edges[filled:], counts[filled:].tolist(), strict=True))


def _spread(values: NDArray[Any]) -> dict[str, float]:
    """Mean, percentiles by nearest rank, and maximum."""
    figures = {"mean": round(float(values.mean()), 2)}
    cuts = np.percentile(values, list(_PERCENTILES.values()), method="inverted_cdf")
    figures.update({name: int(cut) for name, cut in zip(_PERCENTILES, cuts, strict=True)})
    figures["max"] = int(values.max())
    return figures
