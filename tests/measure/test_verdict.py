"""The verdict on replays made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replays_by_hand import replay_of

from tuner.measure import GUARD, Verdict, attainment, curtailment, guarded, judge
from tuner.replay import OverWatch, Replay, Status
from tuner.spec import Slo

MakeReplay = Callable[..., Replay]
SLO = Slo(e2e_p99_s=10.0)


def test_pass(make_replay: MakeReplay) -> None:
    judgement = judge(make_replay(np.full(1000, 5.0)), SLO)
    assert judgement.verdict is Verdict.PASS
    assert judgement.passes
    assert (judgement.p99_s, *judgement.interval_s) == pytest.approx((5.0, 5.0, 5.0))
    assert judgement.margin == pytest.approx(math.log(0.5))
    assert (judgement.attainment, judgement.failed, judgement.requests) == (1.0, 0, 1000)


def test_fail(make_replay: MakeReplay) -> None:
    judgement = judge(make_replay(np.full(1000, 15.0)), SLO)
    assert judgement.verdict is Verdict.FAIL
    assert not judgement.passes
    assert judgement.attainment == 0.0


def test_the_guard_lies_below_the_slo(make_replay: MakeReplay) -> None:
    assert guarded(SLO) == {"e2e": GUARD * 10.0}
    assert judge(make_replay(np.full(1000, 9.4)), SLO).passes
    judgement = judge(make_replay(np.full(1000, 9.6)), SLO)
    assert not judgement.passes
    assert judgement.attainment == 1.0


def test_an_interval_across_the_limit_cannot_tell(make_replay: MakeReplay) -> None:
    latency = np.full(1000, 5.0)
    latency[:10] = 20.0
    judgement = judge(make_replay(latency), SLO)
    assert judgement.passes
    assert judgement.verdict is Verdict.CANNOT_TELL
    assert "straddles" in judgement.reason
    # the upper bound is rank 997 of 1000: three requests may be over it, four may not
    assert judge(make_replay(np.where(np.arange(1000) < 4, 20.0, 5.0)), SLO).verdict is Verdict.CANNOT_TELL
    assert judge(make_replay(np.where(np.arange(1000) < 3, 20.0, 5.0)), SLO).verdict is Verdict.PASS


@pytest.mark.parametrize(("n", "verdict"), [(367, Verdict.CANNOT_TELL), (368, Verdict.PASS)])
def test_too_few_requests_cannot_tell(n: int, verdict: Verdict, make_replay: MakeReplay) -> None:
    judgement = judge(make_replay(np.full(n, 1.0)), SLO)
    assert judgement.verdict is verdict
    assert judgement.passes
    assert ("too few" in judgement.reason) is (verdict is Verdict.CANNOT_TELL)


def test_few_requests_can_still_fail(make_replay: MakeReplay) -> None:
    assert judge(make_replay(np.full(30, 99.0)), SLO).verdict is Verdict.FAIL


def test_failures_are_infinite(make_replay: MakeReplay) -> None:
    few = judge(make_replay(np.full(1000, 1.0), failed=range(3)), SLO)
    assert few.verdict is Verdict.PASS
    assert few.failed == 3
    some = judge(make_replay(np.full(1000, 1.0), failed=range(10)), SLO)
    assert (some.passes, some.verdict) == (True, Verdict.CANNOT_TELL)
    many = judge(make_replay(np.full(1000, 1.0), failed=range(30)), SLO)
    assert (many.passes, many.verdict, many.margin) == (False, Verdict.FAIL, math.inf)
    assert many.p99_s == math.inf


def test_invalid_comes_first(make_replay: MakeReplay) -> None:
    judgement = judge(make_replay(np.full(1000, 1.0), invalid_reason="the client was slow"), SLO)
    assert (judgement.verdict, judgement.passes) == (Verdict.INVALID, False)
    assert judgement.reason == "the client was slow"


def test_a_stopped_replay_failed(make_replay: MakeReplay) -> None:
    judgement = judge(make_replay(np.full(1000, 1.0), stopped=True), SLO)
    assert (judgement.verdict, judgement.passes) == (Verdict.FAIL, False)


def test_without_an_slo(make_replay: MakeReplay) -> None:
    judgement = judge(make_replay(np.full(10, 1.0), failed=[3]), Slo())
    assert judgement.verdict is Verdict.PASS
    assert judgement.attainment == 0.9


def test_every_limit_has_to_hold(make_replay: MakeReplay) -> None:
    slo = Slo(e2e_p99_s=10.0, ttft_p99_s=1.0, tpot_p99_s=0.5)
    latency = np.full(1000, 4.0)
    assert judge(make_replay(latency, ttft_s=np.full(1000, 0.5)), slo).verdict is Verdict.PASS
    slow_first = judge(make_replay(latency, ttft_s=np.full(1000, 2.0)), slo)
    assert (slow_first.verdict, slow_first.metric) == (Verdict.FAIL, "ttft")
    slow_tokens = judge(make_replay(latency, ttft_s=np.full(1000, 0.5), tokens=5), slo)
    assert (slow_tokens.verdict, slow_tokens.metric) == (Verdict.FAIL, "tpot")


def test_a_wide_interval_of_the_lesser_metric_counts_too(make_replay: MakeReplay) -> None:
    slo = Slo(e2e_p99_s=10.0, ttft_p99_s=1.0)
    first = np.full(1000, 0.1)
    first[:8] = 3.0
    judgement = judge(make_replay(np.full(1000, 9.0), ttft_s=first), slo)
    assert judgement.passes
    assert judgement.metric == "e2e"
    assert judgement.verdict is Verdict.CANNOT_TELL
    assert "ttft" in judgement.reason


def test_attainment_needs_every_limit(make_replay: MakeReplay) -> None:
    latency = np.concatenate([np.full(50, 5.0), np.full(50, 20.0)])
    first = np.where(np.arange(100) % 2 == 0, 0.5, 2.0)
    replay = make_replay(latency, ttft_s=first, failed=[0])
    assert attainment(replay, Slo(e2e_p99_s=10.0, ttft_p99_s=1.0)) == pytest.approx(0.24)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.008, 0.012, 0.2]))
def test_curtailment_stops_only_what_cannot_pass(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(50, 400))
    latency = np.where(rng.random(n) < share, rng.uniform(9.0, 20.0, n), rng.uniform(1.0, 9.4, n))
    replay = replay_of(latency, failed=np.flatnonzero(rng.random(n) < share / 4))
    watch = OverWatch(curtailment(SLO, n), n, replay.scheduled_s)
    certain_at = None
    for index in np.argsort(replay.scheduled_s + latency):
        now = float(replay.scheduled_s[index] + latency[index])
        watch.first(index, 0.1 * latency[index])
        watch.done(index, float(latency[index]), bool(replay.ok[index]), 0.0)
        if watch.certain(now):
            certain_at = now
            break
    full = judge(replay, SLO)
    over = full.margin > math.log(GUARD)
    assert (certain_at is not None) is over


# a growing backlog


def queue(rps: float, service_s: float, n: int, seed: int, bursts: bool = False) -> Replay:
    """One server, exponential service of mean `service_s`, Poisson arrivals or bursts of 30."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / rps, n)
    if bursts:
        gaps = np.where(np.arange(n) % 30 == 0, 30 / rps, 0.0)
    scheduled = np.cumsum(gaps) - gaps[0]
    served = rng.exponential(service_s, n)
    free, ends = 0.0, np.empty(n)
    for index in range(n):
        free = max(free, scheduled[index]) + served[index]
        ends[index] = free
    replay = replay_of(ends - scheduled, rps=rps)
    fields = {name: getattr(replay, name) for name in replay.__slots__}
    fields |= {"scheduled_s": scheduled, "sent_s": scheduled, "first_s": ends, "last_s": ends}
    return Replay(**fields)


def test_a_growing_backlog_fails_under_the_slo() -> None:
    judgements = [judge(queue(13.0, 0.1, 1000, seed), Slo(e2e_p99_s=1e6)) for seed in range(20)]
    assert sum(j.unstable for j in judgements) >= 19
    assert all(j.verdict is Verdict.FAIL and not j.passes for j in judgements if j.unstable)


def test_a_steady_queue_is_stable() -> None:
    judgements = [judge(queue(8.0, 0.1, 1000, seed), Slo(e2e_p99_s=1e6)) for seed in range(40)]
    assert sum(j.unstable for j in judgements) <= 1


def test_bursts_are_no_growing_backlog() -> None:
    judgements = [judge(queue(8.0, 0.1, 1000, seed, bursts=True), Slo(e2e_p99_s=1e6)) for seed in range(40)]
    assert sum(j.unstable for j in judgements) <= 1


def test_a_closed_loop_has_no_backlog(make_replay: MakeReplay) -> None:
    growing = np.linspace(1.0, 60.0, 1000)
    assert judge(make_replay(growing, rps=10.0), Slo(e2e_p99_s=1e6)).unstable
    assert not judge(make_replay(growing, rps=10.0, users=5), Slo(e2e_p99_s=1e6)).unstable


def test_statuses_are_kept(make_replay: MakeReplay) -> None:
    replay = make_replay(np.full(5, 1.0), failed=[2])
    assert replay.status.tolist() == [Status.OK, Status.OK, Status.HTTP_ERROR, Status.OK, Status.OK]
    assert judge(replay, SLO).replay is replay
