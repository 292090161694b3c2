"""Replays made by hand."""

from __future__ import annotations

import numpy as np

from tuner.replay import Replay, Status


def replay_of(
    e2e_s: object,
    *,
    rps: float = 10.0,
    ttft_s: object = None,
    tokens: int = 11,
    failed: object = None,
    **more: object,
) -> Replay:
    """A replay with these latencies, evenly spaced; `failed` are indices without an answer."""
    e2e = np.asarray(e2e_s, dtype=np.float64)
    n = len(e2e)
    scheduled = np.arange(n) / rps
    ttft = np.asarray(ttft_s, dtype=np.float64) if ttft_s is not None else 0.1 * e2e
    status = np.full(n, Status.OK, np.int8)
    if failed is not None:
        status[np.asarray(failed)] = Status.HTTP_ERROR
    ok = status == Status.OK
    fields: dict[str, object] = {
        "scheduled_s": scheduled,
        "sent_s": scheduled + 0.001,
        "first_s": np.where(ok, scheduled + ttft, np.nan),
        "last_s": np.where(ok, scheduled + e2e, np.nan),
        "input_tokens": np.full(n, 100, np.int32),
        "output_tokens": np.full(n, tokens, np.int32),
        "tokens": np.where(ok, tokens, 0).astype(np.int32),
        "first_tokens": np.where(ok, 1, 0).astype(np.int32),
        "status": status,
        "offered_rps": rps,
        "engine_s": n / rps,
        **more,
    }
    return Replay(**fields)  # type: ignore[arg-type]
