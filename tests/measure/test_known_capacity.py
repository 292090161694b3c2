"""The search on servers whose capacity is known, from their P99 against load over 100,000 requests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from queues import SlotServer, chat_lengths, poisson_trace, stopped_at, within_a_step

from tuner.engines.simulated import SimulatedEngine
from tuner.hardware import find_gpu
from tuner.measure import GUARD, STEP, LoadTest, judge, nearest_rank
from tuner.models import find_model
from tuner.replay import Workload
from tuner.space import LaunchConfig
from tuner.spec import Slo
from tuner.traces import NestedLoads

SEEDS = 20
# slots, SLO in seconds; a replay has 1,000 requests, more where that is less than three times the SLO
SERVERS = [(128, 30.0), (64, 20.0), (256, 14.0)]


@cache
def truth(slots: int, slo_s: float) -> float:
    return SlotServer(slots).capacity_rps(slo_s)


@pytest.mark.parametrize(("factor", "most"), [(2.0, 6), (8.0, 9)])
@pytest.mark.parametrize(("slots", "slo_s"), SERVERS)
def test_found_within_five_per_cent_by_few_replays(
    slots: int, slo_s: float, factor: float, most: int
) -> None:
    server, capacity = SlotServer(slots), truth(slots, slo_s)
    found = []
    for seed in range(SEEDS):
        start = capacity * factor ** np.random.default_rng(seed).uniform(-1, 1)
        trace = poisson_trace(0.9 * capacity, 4000, seed)
        test = LoadTest(trace, Slo(e2e_p99_s=slo_s), requests=1000, seed=seed)
        result = test.capacity(server.send, start)
        assert result.at.passes and result.at.offered_rps == pytest.approx(result.rps, rel=0.02)
        found.append((result.rps, len(result.probes)))
    good = sum(within_a_step(rps, capacity) and replays <= most for rps, replays in found)
    assert good >= 19, [(rps / capacity, replays) for rps, replays in found]


def test_the_simulated_engines_capacity_is_found() -> None:
    """A few of the seeds of tests/benchmarks/capacity.py: its queues come and go over minutes, which a replay
    has to be long enough to see.
    """
    engine = SimulatedEngine(find_gpu("H100-80G"), find_model("meta-llama/Llama-3.1-8B-Instruct"), "0.21.0")
    server, slo = engine.launch(LaunchConfig(), Path()), Slo(e2e_p99_s=30.0)
    found = []
    for seed, start_rps in enumerate((2.0, 40.0)):
        test = LoadTest(chat_lengths(poisson_trace(8.0, 8000, seed), seed), slo, requests=4000, seed=seed)
        result = test.capacity(server.replay, start_rps)
        assert len(result.probes) <= 9
        found.append(result.rps)
    base = chat_lengths(poisson_trace(1.0, 30_000, 99), 99)

    def p99_s(rps: float) -> float:
        long_run = server.replay(Workload(replace(base, arrival_s=base.arrival_s / rps)))
        return nearest_rank(long_run.e2e_s(), 0.99)

    assert p99_s(max(found) / STEP) <= GUARD * slo.largest_s() < p99_s(min(found) * STEP), found


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


@pytest.mark.parametrize("slots", [16, 64, 256])
def test_a_little_overload_is_seen_and_what_is_carried_is_known(slots: int) -> None:
    server, seen, mistaken, carried = SlotServer(slots), 0, 0, []
    for seed in range(SEEDS):
        loads = NestedLoads(
            poisson_trace(server.saturation_rps(), 4000, seed), min_duration_s=60.0, seed=seed
        )
        over = judge(server.send(Workload(loads.at(1.06 * server.saturation_rps()))), Slo(e2e_p99_s=1e6))
        seen += over.unstable
        carried += [over.carried_rps] if over.carried_rps is not None else []
        fine = judge(server.send(Workload(loads.at(0.9 * server.saturation_rps()))), Slo(e2e_p99_s=1e6))
        mistaken += fine.unstable
        assert fine.unstable == (fine.carried_rps is not None)
    assert seen >= SEEDS - 1 and mistaken <= 1
    assert np.mean(carried) == pytest.approx(server.saturation_rps(), rel=0.03)


def test_an_answer_as_long_as_the_replay_says_nothing_of_what_is_carried() -> None:
    server = SlotServer(10_000)
    for seed in range(SEEDS):
        replay = server.send(Workload(poisson_trace(100.0, 400, seed)))
        assert not judge(replay, Slo(e2e_p99_s=1e6)).unstable


def test_long_answers_under_way_at_an_early_stop_say_nothing_of_what_is_carried() -> None:
    """Four seconds each, stopped after six or after thirty: by then what ends is what arrives."""
    server = SlotServer(10_000)
    for seed in range(SEEDS):
        trace = poisson_trace(20.0, 1000, seed)
        whole = server.send(Workload(trace))
        said = [judge(stopped_at(whole, at_s), Slo(e2e_p99_s=3.0)).carried_rps for at_s in (6.0, 30.0)]
        assert said[0] is None
        assert said[1] is None or said[1] > 0.85 * whole.offered_rps


@pytest.mark.parametrize("slots", [16, 64, 256])
@pytest.mark.parametrize(("slo", "tells_far"), [(Slo(12.0), True), (Slo(20.0, ttft_p99_s=0.5), False)])
def test_an_early_stop_tells_near_from_far(slots: int, slo: Slo, tells_far: bool) -> None:
    """A wait of half a second is too short to tell a burst from an overload."""
    server = SlotServer(slots)
    near, far = [], []
    for seed in range(SEEDS):
        trace = poisson_trace(server.saturation_rps(), 4000, seed)
        test = LoadTest(trace, slo, requests=1000, seed=seed)
        near.append(test.at(server.send_until, 1.15 * server.saturation_rps()).overload)
        far.append(test.at(server.send_until, 3.0 * server.saturation_rps()).overload)
    assert sum(said is None or said < STEP**8 for said in near) >= SEEDS - 1, near
    if tells_far:
        assert sum(said is not None and said > STEP**8 for said in far) >= SEEDS - 1, far


@pytest.mark.parametrize("slots", [64, 256])
def test_a_start_a_little_too_high_is_not_left_far(slots: int) -> None:
    """Whatever made it fail so early: no load far below is paid for."""
    server, slo = SlotServer(slots), Slo(e2e_p99_s=20.0, ttft_p99_s=0.5)
    replays = []
    for seed in range(SEEDS):
        test = LoadTest(poisson_trace(server.saturation_rps(), 4000, seed), slo, requests=1000, seed=seed)
        carried = test.capacity(server.send_until, server.saturation_rps()).rps
        found = test.capacity(server.send_until, 1.1 * carried)
        assert min(probe.rps for probe in found.probes) > 0.75 * found.rps > 0
        replays.append(len(found.probes))
    assert np.mean(replays) <= 5.5 and max(replays) <= 6, replays  # the half step included


def test_a_server_that_is_never_full_is_stable() -> None:
    server = SlotServer(10_000)
    for seed in range(SEEDS):
        replay = server.send(Workload(poisson_trace(20.0, 400, seed)))
        assert not judge(replay, Slo(e2e_p99_s=1e6)).unstable
