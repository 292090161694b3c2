"""What is said whoever watches: replays that prove nothing."""

from __future__ import annotations

from tuner.measure import Judgement, Verdict
from tuner.measure.server_side import server_side
from tuner.report.words import rate


def doubt(rps: float, judgement: Judgement) -> str | None:
    """A replay that proves nothing (a capacity below such a load is the client's and not the server's), or
    one that the server counted otherwise; None for any other.
    """
    if judgement.verdict is Verdict.INVALID:
        return f"replay at {rate(rps)} requests/s INVALID: {judgement.reason}"
    server = server_side(judgement.replay)
    return f"replay at {rate(rps)} requests/s: {server.mismatch}" if server and server.mismatch else None
