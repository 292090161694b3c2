"""The fast scheduler and the plain one tell the same story, to the microsecond."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import block_names, simulate

from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.prefixes import no_prefixes, prefixes_of
from tuner.engines.simulated.scheduler import Simulation
from tuner.traces.trace import Trace, TraceSource

# odd figures, so that no arrival falls on the end of a step, where rounding would decide
GAPS = [0.0, 0.0, 0.010137219, 0.050391723, 0.300711937, 2.00177113]


@dataclass(frozen=True)
class SimpleCost:
    """A step-time function with a floor, so that both branches are met."""

    frontend_token_s: float = 0.0
    frontend_crowd_s: float = 0.0
    load_token_s: float = 0.0
    base: float = 0.0
    floor: float = 0.00913113

    def decode(self, decodes: int) -> tuple[float, float, float, float]:
        return self.base, self.floor, 0.0041 + 0.00037 * decodes, 1.3e-5

    def mixed(
        self, decodes: int, context: int, tokens: int, pairs: int, reads: int, chunks: int, sampled: int
    ) -> float:
        base, floor, fixed, slope = self.decode(decodes)
        gpu = fixed + slope * context + 0.00021 * tokens + 1.1e-6 * pairs + 2.3e-6 * reads + 1e-4 * sampled
        return base + max(floor + 0.0003 * chunks, gpu)


@st.composite
def cases(draw: st.DrawFn, *, shared: bool) -> tuple[Limits, Trace, SimpleCost, int | None]:
    size = draw(st.sampled_from([1, 2, 4, 7, 16]))
    trace_block = draw(st.sampled_from([3, 4, 8, 16])) if shared else 0
    count = draw(st.integers(1, 14))
    gaps = draw(st.lists(st.sampled_from(GAPS), min_size=count, max_size=count))
    answers = draw(st.lists(st.integers(1, 40), min_size=count, max_size=count))
    prompts, ids, offsets = [], [], [0]
    if shared:
        # prompts walk a small tree of named blocks; the same path means the same content
        tree: dict[tuple[int, ...], int] = {}
        for i in range(count):
            depth = draw(st.integers(1, 6))
            path: tuple[int, ...] = ()
            for _ in range(depth):
                path += (draw(st.integers(0, 1)),)
                ids.append(tree.setdefault(path, len(tree)))
            cut = draw(st.integers(0, trace_block - 1))
            prompts.append(depth * trace_block - cut)
            if cut and draw(st.booleans()):
                # a cut block that nobody else has
                ids[-1] = 10_000 + i
            offsets.append(len(ids))
    else:
        prompts = draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))
        offsets = [0] * (count + 1)
    longest = max(p + a for p, a in zip(prompts, answers, strict=True))
    fits = -(-longest // size)
    blocks = fits + 1 + draw(st.sampled_from([0, 1, 2, fits // 2, fits, 3 * fits, 20 * fits]))
    seqs = draw(st.sampled_from([1, 2, 3, 8, 32]))
    chunked = draw(st.sampled_from([True, True, True, False]))
    budget = draw(st.sampled_from([seqs, seqs + 3, 32, 100])) if chunked else longest + seqs
    limits = Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=max(budget, seqs),
        block_size=size,
        kv_blocks=blocks,
        max_model_len=longest,
        prefix_caching=draw(st.booleans()),
        chunked_prefill=chunked,
        async_scheduling=draw(st.booleans()),
        reserve_full_sequence=draw(st.booleans()),
    )
    cost = SimpleCost(
        frontend_token_s=draw(st.sampled_from([0.0, 0.00071717, 0.00419191])),
        frontend_crowd_s=draw(st.sampled_from([0.0, 0.0011])),
        base=draw(st.sampled_from([0.0, 0.00213717])),
        floor=draw(st.sampled_from([0.0, 0.00913113, 0.0201237])),
    )
    trace = Trace(
        arrival_s=np.cumsum(gaps) - gaps[0],
        input_tokens=np.array(prompts, dtype=np.int32),
        output_tokens=np.array(answers, dtype=np.int32),
        session=np.arange(count, dtype=np.int64),
        block_offsets=np.array(offsets, dtype=np.int64),
        block_ids=np.array(ids, dtype=np.int64),
        block_tokens=trace_block,
        source=TraceSource(format="test"),
    )
    return limits, trace, cost, draw(st.sampled_from([None, None, 1, 3, 9]))


def compare(limits: Limits, trace: Trace, cost: SimpleCost, users: int | None) -> int:
    arrivals = trace.arrival_s.tolist()
    prompts, answers = trace.input_tokens.tolist(), trace.output_tokens.tolist()
    names = [
        block_names(
            i, prompts[i], answers[i], trace.blocks_of(i).tolist(), trace.block_tokens, limits.block_size
        )
        for i, (p, a) in enumerate(zip(prompts, answers, strict=True))
    ]
    first, last, preemptions = simulate(limits, cost, arrivals, prompts, answers, names=names, users=users)
    prefixes = prefixes_of(trace, limits.block_size) if limits.prefix_caching else no_prefixes(len(trace))
    fast = Simulation(limits, cost, prefixes, arrivals, prompts, answers, users=users).run()
    assert fast.preemptions == preemptions
    np.testing.assert_allclose(fast.first_s, first, rtol=0, atol=1e-6)
    np.testing.assert_allclose(fast.last_s, last, rtol=0, atol=1e-6)
    return preemptions


@settings(max_examples=160, deadline=None)
@given(cases(shared=False))
def test_same_times_without_shared_prefixes(case: tuple[Limits, Trace, SimpleCost, int | None]) -> None:
    compare(*case)


@settings(max_examples=160, deadline=None)
@given(cases(shared=True))
def test_same_times_with_shared_prefixes(case: tuple[Limits, Trace, SimpleCost, int | None]) -> None:
    compare(*case)


def bursts(seed: int, room: float) -> tuple[Limits, Trace]:
    """Bursts and pauses, long and short answers, in `room` times the blocks that the longest one needs."""
    rng = np.random.default_rng(seed)
    count, size = 150, int(rng.choice([1, 4, 7, 16]))
    prompts, answers = rng.integers(1, 40, count), rng.integers(1, rng.choice([4, 30, 90], count))
    longest = int((prompts + answers).max())
    limits = Limits(
        max_num_seqs=int(rng.choice([4, 8, 64])),
        max_num_batched_tokens=int(rng.choice([64, 200])),
        block_size=size,
        kv_blocks=int(room * -(-longest // size)) + 2,
        max_model_len=longest,
        prefix_caching=bool(rng.integers(2)),
        async_scheduling=bool(seed % 2),
        reserve_full_sequence=bool(rng.integers(2)),
    )
    gaps = rng.choice([0.0, 0.010137219, 0.050391723, 0.300711937], count, p=[0.2, 0.4, 0.3, 0.1])
    return limits, Trace(
        arrival_s=np.cumsum(gaps) - gaps[0],
        input_tokens=prompts.astype(np.int32),
        output_tokens=answers.astype(np.int32),
        session=np.arange(count, dtype=np.int64),
        block_offsets=np.zeros(count + 1, dtype=np.int64),
        block_ids=np.zeros(0, dtype=np.int64),
        block_tokens=0,
        source=TraceSource(format="test"),
    )


@pytest.mark.parametrize("users", [None, 6])
@pytest.mark.parametrize("room", [1.0, 2.5, 6.0, 40.0])
def test_same_times_in_and_out_of_calm_stretches(room: float, users: int | None) -> None:
    preemptions = [compare(*bursts(seed, room), SimpleCost(), users) for seed in range(6)]
    assert any(preemptions) == (room < 6.0)


@dataclass
class Heard:
    """An observer that stops a replay after so many looks."""

    looks: int = 1 << 30
    firsts: dict[int, float] = field(default_factory=dict)
    lasts: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def first(self, request: int, arrival_s: float, at_s: float) -> None:
        self.firsts[request] = at_s

    def ended(self, request: int, arrival_s: float, first_s: float, at_s: float) -> None:
        self.lasts[request] = arrival_s, first_s, at_s

    def stop(self, now_s: float) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize("users", [None, 6])
@pytest.mark.parametrize("room", [2.5, 40.0])
@pytest.mark.parametrize("looks", [1 << 30, 4])
def test_an_observer_hears_what_the_timeline_tells(room: float, users: int | None, looks: int) -> None:
    limits, trace = bursts(3, room)
    columns = trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist()
    heard = Heard(looks)
    told = Simulation(
        limits, SimpleCost(), no_prefixes(len(trace)), *columns, users=users, observer=heard
    ).run()
    assert told.stopped == (looks < len(trace))
    assert (len(heard.lasts) < len(trace)) == told.stopped
    assert heard.firsts == {i: at for i, at in enumerate(told.first_s) if not np.isnan(at)}
    assert heard.lasts == {
        i: (told.arrival_s[i], told.first_s[i], at) for i, at in enumerate(told.last_s) if not np.isnan(at)
    }


@pytest.mark.parametrize(
    ("prompts", "answers", "paths", "trace_block", "longest"),
    [
        ([3] * 12, [1, 1, 1, 17, 1, 1, 8, 1, 1, 1, 1, 1], [[0]] * 12, 3, 20),
        (
            [4, 4, 8, 4, 4, 4, 4, 4, 4, 8, 4, 4],
            [1, 1, 13, 8, 1, 1, 1, 1, 1, 17, 1, 1],
            [[0], [1], [0, 2], [1], [0], [0], [0], [0], [0], [0, 2], [0], [0]],
            4,
            25,
        ),
    ],
)
def test_a_copy_of_a_cached_block_outlives_it(
    prompts: list[int], answers: list[int], paths: list[list[int]], trace_block: int, longest: int
) -> None:
    """Each prompt's last block is computed anew: the copies are hit once the first of them is evicted."""
    limits = Limits(
        max_num_seqs=2,
        max_num_batched_tokens=2,
        block_size=1,
        kv_blocks=longest + 1,
        max_model_len=longest,
        prefix_caching=True,
        chunked_prefill=True,
        async_scheduling=False,
        reserve_full_sequence=False,
    )
    trace = Trace(
        arrival_s=np.zeros(len(prompts)),
        input_tokens=np.array(prompts, dtype=np.int32),
        output_tokens=np.array(answers, dtype=np.int32),
        session=np.arange(len(prompts), dtype=np.int64),
        block_offsets=np.cumsum([0] + [len(path) for path in paths]),
        block_ids=np.concatenate(paths),
        block_tokens=trace_block,
        source=TraceSource(format="test"),
    )
    assert compare(limits, trace, SimpleCost(), None)
