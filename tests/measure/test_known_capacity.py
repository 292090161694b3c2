"""The search on servers whose capacity is known, from their P99 against load over 100,000 requests."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from queues import SlotServer, poisson_trace, within_a_step

from tuner.measure import LoadTest, judge
from tuner.replay import Workload
from tuner.spec import Slo
from tuner.traces import NestedLoads

SEEDS = 20
# slots, SLO in seconds, requests asked for; a replay lasts three times the SLO, 2,700 and more in the first
SERVERS = [(128, 30.0, 1000), (64, 20.0, 4000)]


@cache
def truth(slots: int, slo_s: float) -> float:
    return SlotServer(slots).capacity_rps(slo_s)


@pytest.mark.parametrize(("factor", "most"), [(2.0, 6), (8.0, 9)])
@pytest.mark.parametrize(("slots", "slo_s", "requests"), SERVERS)
def test_found_within_five_per_cent_by_few_replays(
    slots: int, slo_s: float, requests: int, factor: float, most: int
) -> None:
    server, capacity = SlotServer(slots), truth(slots, slo_s)
    found, replays = [], []
    for seed in range(SEEDS):
        start = capacity * factor ** np.random.default_rng(seed).uniform(-1, 1)
        trace = poisson_trace(0.9 * capacity, 4000, seed)
        test = LoadTest(trace, Slo(e2e_p99_s=slo_s), requests=requests, seed=seed)
        result = test.capacity(server.send, start)
        found.append(result.rps)
        replays.append(len(result.probes))
    assert max(replays) <= most
    assert sum(within_a_step(rps, capacity) for rps in found) >= 19, [rps / capacity for rps in found]


@pytest.mark.parametrize(("slots", "slo_s"), [(64, 20.0), (128, 30.0), (16, 30.0)])
def test_overload_does_not_pass_and_what_is_carried_does(slots: int, slo_s: float) -> None:
    server = SlotServer(slots)
    passed = dict.fromkeys((0.8, 0.9, 1.1, 1.25), 0)
    for seed in range(SEEDS):
        trace = poisson_trace(server.saturation_rps(), 4000, seed)
        loads = NestedLoads(trace, requests=1000, min_duration_s=3 * slo_s, seed=seed)
        for share in passed:
            replay = server.send(Workload(loads.at(share * server.saturation_rps())))
            passed[share] += judge(replay, Slo(e2e_p99_s=slo_s)).passes
    assert passed[1.1] <= 1 and passed[1.25] == 0, passed
    assert passed[0.8] == SEEDS and passed[0.9] >= SEEDS - 1, passed


def test_a_server_that_is_never_full_is_stable() -> None:
    server = SlotServer(10_000)
    for seed in range(SEEDS):
        replay = server.send(Workload(poisson_trace(20.0, 400, seed)))
        assert not judge(replay, Slo(e2e_p99_s=1e6)).unstable
