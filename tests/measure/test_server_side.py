"""The server's counters beside the client's record: what fits, and what does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuner.measure.server_side import server_side
from tuner.replay import Replay, Status


def record(requests: float | None, tokens: float | None, *, failed: int = 0, stopped: bool = False) -> Replay:
    """Ten requests of ten tokens each, some of them failed, and what the server counted."""
    n = 10
    status = np.zeros(n, np.int8)
    status[:failed] = Status.CONNECTION
    got = np.where(status == Status.OK, 10, 0).astype(np.int32)
    counters = {"server_requests": requests, "server_generation_tokens": tokens}
    return Replay(
        scheduled_s=np.arange(n, dtype=float),
        sent_s=np.arange(n, dtype=float),
        first_s=np.arange(n) + 0.1,
        last_s=np.arange(n) + 0.2,
        input_tokens=np.full(n, 5, np.int32),
        output_tokens=np.full(n, 10, np.int32),
        tokens=got,
        first_tokens=np.ones(n, np.int32),
        status=status,
        offered_rps=1.0,
        engine_s=10.0,
        stopped=stopped,
        counters={name: value for name, value in counters.items() if value is not None},
    )


@pytest.mark.parametrize(
    ("replay", "said"),
    [
        (record(10, 100), None),
        (record(10, 101), None),
        (record(None, 100), None),
        (record(12, 100), "finished 12 requests and the client 10 of 10: does somebody else"),
        (record(7, 100), "finished 7 requests and the client 10 of 10: does it count for only one"),
        (record(10, 400), "generated 400 tokens and the client got 100 tokens"),
        (record(10, 90), "generated 90 tokens"),
        # a request that failed may have been finished, or not, after any number of its tokens
        (record(7, 70, failed=3), None),
        (record(10, 100, failed=3), None),
        (record(6, 69, failed=3), "finished 6 requests and the client 7 of 10"),
        (record(10, 120, failed=3), "generated 120 tokens"),
        (record(2, 5, stopped=True), None),
        (replace(record(10, 400), tokens_estimated=True), "the client got 100 chunks"),
    ],
)
def test_what_does_not_fit_is_said(replay: Replay, said: str | None) -> None:
    account = server_side(replay)
    assert account is not None
    assert account.mismatch is None if said is None else said in (account.mismatch or "")


def test_a_server_without_counters_has_no_account() -> None:
    assert server_side(record(None, None)) is None
