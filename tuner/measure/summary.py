"""A replay in figures: the object that `replay --json` and `simulate --json` print."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.measure.percentile import nearest_rank, p99_interval
from tuner.measure.verdict import Judgement, attainment
from tuner.replay.records import Replay
from tuner.spec import Slo
from tuner.traces.trace import F64


def finite(value: float) -> float | None:
    """A figure as JSON can hold it: None for NaN and infinities."""
    return round(float(value), 6) if math.isfinite(value) else None


def distribution(values: F64) -> dict[str, Any]:
    """Mean and percentiles in seconds; failures are infinite and so can only show in the upper ones."""
    answered = values[np.isfinite(values)]
    low, high = p99_interval(values)
    return {
        "mean": finite(float(answered.mean())) if len(answered) else None,
        "p50": finite(nearest_rank(values, 0.50)),
        "p90": finite(nearest_rank(values, 0.90)),
        "p99": finite(nearest_rank(values, 0.99)),
        "p99_interval": [finite(low), finite(high)],
    }


def achieved(replay: Replay, slo: Slo | None = None) -> tuple[float, float, float]:
    """Requests/s, output tokens/s and goodput (requests/s within the SLO), from first send to last answer."""
    ok = replay.ok
    if not ok.any():
        return 0.0, 0.0, 0.0
    span_s = float(np.nanmax(replay.last_s[ok]) - np.nanmin(replay.sent_s))
    if span_s <= 0:
        return 0.0, 0.0, 0.0
    share = attainment(replay, slo) if slo else 1.0
    return (
        float(ok.sum()) / span_s,
        float(replay.tokens[ok].sum()) / span_s,
        share * len(replay) / span_s,
    )


def summarize(judgement: Judgement, slo: Slo) -> dict[str, Any]:
    """The figures of one replay, with the keys of the design."""
    replay = judgement.replay
    rps, tokens_per_s, goodput = achieved(replay, slo)
    lag = replay.lag_s()
    return {
        "verdict": judgement.verdict.value,
        "reason": judgement.reason,
        "simulated": replay.simulated,
        "offered_rps": finite(replay.offered_rps),
        "achieved_rps": finite(rps),
        "requests": len(replay),
        "failed": judgement.failed,
        "errors": dict(replay.errors),
        "e2e_s": distribution(replay.e2e_s()),
        "ttft_s": distribution(replay.ttft_s()),
        "tpot_s": distribution(replay.tpot_s()),
        "lag_s": {
            "p50": finite(nearest_rank(lag, 0.5)),
            "p99": finite(nearest_rank(lag, 0.99)),
            "max": finite(float(lag.max())) if len(lag) else None,
        },
        "output_tps": finite(tokens_per_s),
        "goodput_rps": finite(goodput),
        "attainment": finite(judgement.attainment),
        "tokens_estimated": replay.tokens_estimated,
        "counters": {name: finite(value) for name, value in replay.counters.items()},
        "invalid_reason": replay.invalid_reason,
    }
