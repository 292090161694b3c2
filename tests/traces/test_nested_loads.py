"""Loads made of a trace: nested, at the rate asked for, and faithful to what sessions share."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trace_examples import make_trace, traces

from tuner.errors import BadRequest
from tuner.traces import NestedLoads, Trace, dispersion, shipped_trace
from tuner.traces.loads import MAX_REQUESTS

SHARES = (0.07, 0.4, 0.85, 1.0, 1.05, 1.6, 2.0, 3.7, 12.0)


@pytest.fixture(scope="module")
def chat() -> Trace:
    return shipped_trace()


def stream(load: Trace, until_s: float) -> Counter[tuple[int, tuple[int, ...], int]]:
    """What a load sends before a time of the stream: session, blocks and answer of every request."""
    at_s = load.arrival_s + load.source.changes[-1]["begins_s"]
    return Counter(
        (int(load.session[i]), tuple(load.blocks_of(i).tolist()), int(load.output_tokens[i]))
        for i in np.flatnonzero(at_s < until_s)
    )


def ends_s(load: Trace) -> float:
    """When a load's last request comes, in the stream's time."""
    return float(load.arrival_s[-1]) + load.source.changes[-1]["begins_s"]


def assert_nested(lower: Trace, higher: Trace) -> None:
    """All that the lower load sends in the span of both, the higher one sends too."""
    until_s = min(ends_s(lower), ends_s(higher)) * (1 - 1e-9)
    assert not stream(lower, until_s) - stream(higher, until_s)


def test_natural_load_is_the_trace_itself(chat: Trace) -> None:
    loads = NestedLoads(chat, requests=len(chat))
    assert loads.natural_rps == pytest.approx(chat.rate_rps)
    same = loads.at(loads.natural_rps)
    assert same.digest() == chat.digest()


def test_natural_load_of_a_part_is_the_trace_while_it_lasts(chat: Trace) -> None:
    loads = NestedLoads(chat, requests=700)
    part = loads.at(loads.natural_rps)
    assert part.digest() == chat.take(np.arange(700)).digest()
    assert loads.natural_rps == pytest.approx(part.rate_rps)


@pytest.mark.parametrize("seconds", [7.0, 90.0, 100 / 3, 600.1, 1199.9, 5000.0])
def test_natural_load_of_a_duration_is_the_trace_while_it_lasts(chat: Trace, seconds: float) -> None:
    loads = NestedLoads(chat, requests=2, min_duration_s=seconds)
    part = loads.at(loads.natural_rps)
    first = min(len(part), len(chat))
    assert len(part) >= np.count_nonzero(chat.arrival_s <= seconds)
    assert part.take(np.arange(first)).digest() == chat.take(np.arange(first)).digest()


def test_natural_load_goes_round_again(chat: Trace) -> None:
    loads = NestedLoads(chat, requests=5000)
    longer = loads.at(loads.natural_rps)
    assert len(longer) == 5000
    assert longer.take(np.arange(2000)).digest() == chat.digest()
    again = longer.take(np.arange(2000, 4000))
    assert np.allclose(again.arrival_s - again.arrival_s[0], chat.arrival_s)
    assert not set(again.session.tolist()) & set(chat.session.tolist())
    assert longer.arrival_s[2000] - longer.arrival_s[1999] == pytest.approx(chat.duration_s / 1999)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("requests, min_duration_s", [(1000, 0.0), (400, 300.0), (3000, 90.0)])
def test_comes_at_the_rate_asked_for(chat: Trace, share: float, requests: int, min_duration_s: float) -> None:
    loads = NestedLoads(chat, requests=requests, min_duration_s=min_duration_s)
    rps = share * loads.natural_rps
    load = loads.at(rps)
    assert len(load) == loads.planned(rps) == max(requests, math.ceil(min_duration_s * rps - 1e-6))
    # a load comes in whole sessions: a twentieth of the trace is a few dozen of them
    assert load.rate_rps == pytest.approx(rps, rel=0.03 if share >= 0.1 else 0.06)
    assert load.arrival_s[0] == 0 and (np.diff(load.arrival_s) >= 0).all()
    assert load.duration_s >= 0.97 * min_duration_s


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("requests, min_duration_s", [(1000, 0.0), (2, 200.0), (500, 120.0)])
def test_a_higher_load_only_adds(chat: Trace, requests: int, min_duration_s: float, seed: int) -> None:
    loads = NestedLoads(chat, requests=requests, min_duration_s=min_duration_s, seed=seed)
    made = [loads.at(share * loads.natural_rps) for share in SHARES]
    for lower, higher in combinations(made, 2):
        assert_nested(lower, higher)
        assert ends_s(higher) <= ends_s(lower) or min_duration_s


@given(trace=traces(), seed=st.integers(0, 2**32), low=st.floats(0.2, 5), factor=st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_nested_for_any_trace(trace: Trace, seed: int, low: float, factor: float) -> None:
    loads = NestedLoads(trace, requests=30, min_duration_s=trace.duration_s, seed=seed)
    assume(0.1 < loads.natural_rps * trace.duration_s / len(trace) < 10)
    assert_nested(loads.at(low * loads.natural_rps), loads.at(low * factor * loads.natural_rps))


@given(trace=traces(), share=st.floats(0.2, 20), seed=st.integers(0, 3), requests=st.integers(1, 100))
@settings(max_examples=40, deadline=None)
def test_any_load_of_any_trace(trace: Trace, share: float, seed: int, requests: int) -> None:
    loads = NestedLoads(trace, requests=requests, seed=seed)
    rps = share * loads.natural_rps
    try:
        load = loads.at(rps)
    except BadRequest:
        assert loads.natural_rps * share > 100 * trace.rate_rps or trace.duration_s < 1e-6
        return
    assert len(load) == max(requests, 2)
    assert load.arrival_s[0] == 0 and (np.diff(load.arrival_s) >= 0).all()
    assert load.session.min() >= 0
    assert load.digest() == NestedLoads(trace, requests=requests, seed=seed).at(rps).digest()
    assert (
        np.diff(load.block_offsets) * load.block_tokens == load.input_tokens * (load.block_tokens > 0)
    ).all()


def test_the_order_of_asking_does_not_matter(chat: Trace) -> None:
    one, other = NestedLoads(chat, seed=3), NestedLoads(chat, seed=3)
    forward = [one.at(x).digest() for x in (0.5, 2.0, 9.0)]
    backward = [other.at(x).digest() for x in (9.0, 2.0, 0.5)]
    assert forward == backward[::-1]
    assert NestedLoads(chat, seed=4).at(9.0).digest() != forward[2]


def test_shared_blocks_stay_shared_and_private_ones_are_renamed(chat: Trace) -> None:
    loads = NestedLoads(chat, requests=4000)
    load = loads.at(4 * loads.natural_rps)
    owners: dict[int, set[int]] = defaultdict(set)
    for index in range(len(chat)):
        for block in chat.blocks_of(index).tolist():
            owners[block].add(int(chat.session[index]))
    shared = {block for block, who in owners.items() if len(who) > 1}
    assert shared
    scaled: dict[int, set[int]] = defaultdict(set)
    for index in range(len(load)):
        for block in load.blocks_of(index).tolist():
            scaled[block].add(int(load.session[index]))
    assert {block for block, who in scaled.items() if len(who) > 1} == shared


def test_a_session_keeps_its_order_and_its_growing_prompt(chat: Trace) -> None:
    loads = NestedLoads(chat, requests=4000)
    load = loads.at(3.3 * loads.natural_rps)
    last: dict[int, list[int]] = {}
    for index, session in enumerate(load.session.tolist()):
        blocks = load.blocks_of(index).tolist()
        if session in last:
            before = last[session][:-1]
            assert blocks[: len(before)] == before
            assert len(blocks) > len(before)
        last[session] = blocks


def test_copies_keep_the_bursts_on_average(chat: Trace) -> None:
    copied = []
    for seed in range(12):
        loads = NestedLoads(chat, requests=8000, seed=seed)
        copied.append(dispersion(loads.at(4 * loads.natural_rps).arrival_s)["iod_60s"] or 0.0)
    original = dispersion(chat.arrival_s)["iod_60s"]
    assert original is not None
    assert 0.6 * original < np.mean(copied) < 1.4 * original


def test_scaling_is_recorded(chat: Trace) -> None:
    loads = NestedLoads(chat, requests=500, seed=11)
    load = loads.at(2.5)
    change = load.source.changes[-1]
    assert load.source.changes[:-1] == chat.source.changes
    assert change["change"] == "load" and change["seed"] == 11 and change["load_rps"] == 2.5
    assert change["dispersion_before"] == dispersion(chat.arrival_s)
    assert change["dispersion_after"] == dispersion(load.arrival_s)


def test_recorded_texts_go_along() -> None:
    trace = replace(make_trace([0, 1, 2]), bodies=("a", "b", "c"))
    load = NestedLoads(trace, requests=30).at(3.0)
    assert load.bodies is not None and len(load.bodies) == 30
    lengths = {"a": 0, "b": 1, "c": 2}
    assert [lengths[body] for body in load.bodies] == [s % 3 for s in load.session.tolist()]


def test_all_at_once_counts_as_one_second() -> None:
    loads = NestedLoads(make_trace([0.0] * 50), requests=100)
    assert loads.natural_rps == pytest.approx(99.0)
    assert len(loads.at(10.0)) == 100
    assert loads.at(10.0).rate_rps == pytest.approx(10.0, rel=0.1)


def test_one_request_is_one_a_second() -> None:
    loads = NestedLoads(make_trace([0.0]), requests=10)
    assert loads.natural_rps == 1.0
    assert loads.at(1.0).arrival_s.tolist() == list(map(float, range(10)))


@pytest.mark.parametrize("rps", [0.0, -1.0, math.nan, math.inf, 1e-9, 1e9])
def test_no_such_load(chat: Trace, rps: float) -> None:
    with pytest.raises(BadRequest):
        NestedLoads(chat).at(rps)


def test_the_longest_replay_is_said() -> None:
    loads = NestedLoads(make_trace(np.arange(1000) / 100), min_duration_s=1e4)
    load = loads.at(100.0)
    assert len(load) == MAX_REQUESTS
    assert any("cut at 200,000 requests" in note for note in load.source.notes)
    assert load.rate_rps == pytest.approx(100.0, rel=0.01)
