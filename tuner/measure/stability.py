"""Whether a server kept up with what it was sent: if a queue grows, latencies still under the SLO prove
nothing.
"""

from __future__ import annotations

import math

import numpy as np

from tuner.measure.percentile import nearest_rank
from tuner.replay.records import Replay, Status
from tuner.traces.trace import F64, I64

MIN_REQUESTS = 90
SHORTFALL = 0.01
"""A server falls behind when it carries so much less than it is offered."""
_STOPPED_SHORTFALL = 0.1
"""Less is noise in what ended before an early stop."""
_FILLING = 0.1
"""Added to that, for each part of the sending that an answer takes: a stretch holds less while it fills."""
_ANSWERS = 5.0
"""Below so many times an answer's length a replay says nothing about what is carried."""
_LAST = 9  # requests by which the wait at an early stop is told
_BINS = 30  # of the sending
_STRETCH = 10  # bins over which the most that it carries is taken: a third of the sending


def backlog_grows(replay: Replay) -> bool:
    """True when, in an open loop, the server never carried what it was offered.

    Behind a full server the answers' tokens a second are all that it can do, whatever arrives. Where they
    stay below what the whole replay offers in every stretch as long as a third of the sending (the drain
    behind it counts too), the queue grows, and would go on growing in a longer replay. A server that keeps up
    makes good every lull by a stretch that is better. On Poisson arrivals at a server of 8 to 256 places, 5%
    of overload show in all replays of 1,000 requests and 2% in nine of ten, and at 90% of what the server
    can do one replay in fifty is taken for overload.
    """
    if len(replay) < MIN_REQUESTS or replay.users is not None:
        return False
    begin, end = _sending(replay)
    if not end > begin:
        return False
    offered, carried = offered_and_carried_tps(replay)
    filling = _answer_s(replay) / (end - begin)
    if filling * _ANSWERS > 1.0:
        return False
    return carried < offered * (1.0 - SHORTFALL - _FILLING * filling)


def _answer_s(replay: Replay) -> float:
    """How long an answer streams where nothing holds it up, the mean over all tokens.

    Of a replay that was stopped early all answers count: it is the short ones that have ended.
    """
    ok = replay.ok
    if not ok.any():
        return 0.0
    work = np.maximum(replay.tokens[ok], 1).astype(np.float64)
    pace_s = nearest_rank((replay.last_s[ok] - replay.first_s[ok]) / work, 0.1)
    if replay.stopped:
        work = np.maximum(replay.output_tokens, 1).astype(np.float64)
    return pace_s * float((work * work).sum() / work.sum())


def _sending(replay: Replay) -> tuple[float, float]:
    """When the first and the last request were due: not in order where sessions are causal."""
    return float(replay.scheduled_s.min()), float(replay.scheduled_s.max())


def carried_rps(replay: Replay) -> float | None:
    """Requests a second of this workload that the server carried while it fell behind; None where it kept up
    or where too little was answered to say.
    """
    if len(replay) < MIN_REQUESTS:
        return None
    offered, carried = _before_the_stop(replay) if replay.stopped else offered_and_carried_tps(replay)
    shortfall = _STOPPED_SHORTFALL if replay.stopped else SHORTFALL
    if not 0.0 < carried < offered * (1.0 - shortfall):  # not a number is neither
        return None
    return replay.offered_rps * carried / offered


def overload(replay: Replay) -> float:
    """How many times what the server carries a replay that was stopped early seems to have offered, roughly;
    1 where nothing tells, and in a closed loop.

    Two signs, the stronger counts. Behind a full server the request that arrives after t seconds of r times
    its rate waits (r - 1) t for its first token. And where all requests are served at once but slowly, few
    have ended of those that came early enough to be through with nothing in their way.
    """
    started = ~np.isnan(replay.first_s)
    if replay.users is not None or not started.any():
        return 1.0
    due = replay.scheduled_s - replay.scheduled_s.min()
    last = np.flatnonzero(started)[np.argsort(due[started], kind="stable")][-_LAST:]
    waited = float(np.median(replay.first_s[last] - replay.scheduled_s[last]))
    by_waiting = 1.0 + waited / max(float(np.median(due[last])), 1e-3)
    ended = np.count_nonzero(replay.ok)
    if not ended:
        return by_waiting
    stopped_s = float(replay.last_s[replay.ok].max() - replay.scheduled_s.min())
    through = np.count_nonzero(due <= stopped_s - _answer_s(replay))
    return max(by_waiting, float(through) / float(ended))


def offered_and_carried_tps(replay: Replay) -> tuple[float, float]:
    """Output tokens a second that a replay offers, of requests that were answered, and the most that came
    back in a stretch as long as a third of the sending. Not a number in a closed loop.

    Tokens between a request's first and last are taken to come evenly.
    """
    ok = replay.ok
    begin, end = _sending(replay)
    if replay.users is not None or not end > begin or not ok.any():
        return math.nan, math.nan
    work = np.maximum(replay.tokens[ok], 1).astype(np.float64)
    width = (end - begin) / _BINS
    edges = np.asarray(begin + width * np.arange(_BINS + _STRETCH + 1), np.float64)
    came = _came_by(edges, replay.first_s[ok], replay.last_s[ok], work)
    most = float((came[_STRETCH:] - came[:-_STRETCH]).max()) / (_STRETCH * width)
    return float(work.sum()) / (end - begin), most


def _came_by(edges: F64, first: F64, last: F64, work: F64) -> F64:
    """Tokens that have come by each of the ascending times."""
    span = np.maximum(last - first, 1e-9)
    order = np.argsort(first, kind="stable")
    first, last, work, span = first[order], last[order], work[order], span[order]
    ends = np.argsort(last, kind="stable")
    # a request under way has brought pace x (time - first): sums of pace and pace x first, over those that
    # have begun less those that have ended, give all of them at once
    pace = work / span
    begun = np.searchsorted(first, edges, "right")
    ended = np.searchsorted(last[ends], edges, "right")

    def upto(values: F64, counts: I64) -> F64:
        return np.asarray(np.concatenate([[0.0], np.cumsum(values)])[counts], np.float64)

    paces = upto(pace, begun) - upto(pace[ends], ended)
    origins = upto(pace * first, begun) - upto((pace * first)[ends], ended)
    return np.asarray(paces * edges - origins + upto(work[ends], ended), np.float64)


def _before_the_stop(replay: Replay) -> tuple[float, float]:
    """The same of a replay that was stopped early: from the answers that ended, by when they ended: the
    most in a third of its time.
    """
    ok = replay.ok
    begin, end = _sending(replay)
    span_s = end - begin
    if replay.users is not None or not span_s > 0.0 or np.count_nonzero(ok) < MIN_REQUESTS // 2:
        return math.nan, math.nan
    failed = ~ok & (replay.status != Status.UNFINISHED)
    work = np.maximum(replay.output_tokens, 1).astype(np.float64)
    last = replay.last_s[ok]
    end = float(last.max())
    if end < _ANSWERS * _answer_s(replay):  # long answers are still under way: what ended is no measure
        return math.nan, math.nan
    order = np.argsort(last, kind="stable")
    edges = end * np.arange(_BINS + 1) / _BINS
    came = np.concatenate([[0.0], np.cumsum(work[ok][order])])[np.searchsorted(last[order], edges, "right")]
    most = float((came[_STRETCH:] - came[:-_STRETCH]).max()) / (end * _STRETCH / _BINS)
    return float(work[~failed].sum()) / span_s, most
