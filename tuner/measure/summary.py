"""A replay in figures: the object that `replay --json` and `simulate --json` print."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.measure.percentile import nearest_rank, p99_interval
from tuner.measure.server_side import server_side
from tuner.measure.verdict import Judgement, within
from tuner.replay.records import Replay
from tuner.spec import Slo
from tuner.traces.trace import F64

_WARM_UP = 1 / 3


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
    """Answered requests/s, their output tokens/s, and goodput (those within the SLO).

    In an open loop they are the answers that came between a third of the sending and its end, over that time:
    the filling of the engine and the drain behind the last request are left out, so that a load that the
    server carries shows as itself and one that it does not as what it carries. Where answers take longer than
    a third of the sending (a burst sent at once, say), and in a closed loop, it is everything from the first
    send to the last answer.
    """
    ok = replay.ok
    if not ok.any():
        return 0.0, 0.0, 0.0
    begin, end = _window(replay)
    if end <= begin:
        return 0.0, 0.0, 0.0
    with np.errstate(invalid="ignore"):
        came = ok & (replay.last_s >= begin) & (replay.last_s <= end)
    good = came & within(replay, slo) if slo else came
    span_s = end - begin
    return (
        float(np.count_nonzero(came)) / span_s,
        float(replay.tokens[came].sum()) / span_s,
        float(np.count_nonzero(good)) / span_s,
    )


def _window(replay: Replay) -> tuple[float, float]:
    """From when to when answers are counted."""
    ok = replay.ok
    first_sent, last_sent = float(np.nanmin(replay.sent_s)), float(np.nanmax(replay.sent_s))
    warm_up_s = _WARM_UP * (last_sent - first_sent)
    if replay.users is not None or float(np.median(replay.last_s[ok] - replay.sent_s[ok])) > warm_up_s:
        return first_sent, float(np.nanmax(replay.last_s[ok]))
    return first_sent + warm_up_s, last_sent


def summarize(judgement: Judgement, slo: Slo) -> dict[str, Any]:
    """The figures of one replay, with the keys of the design."""
    replay = judgement.replay
    rps, tokens_per_s, goodput = achieved(replay, slo)
    lag = replay.lag_s()
    server = server_side(replay)
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
        "server": server.to_json() if server else None,
        "invalid_reason": replay.invalid_reason,
    }
