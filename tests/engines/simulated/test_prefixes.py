"""Runs of shared blocks: what a trace's ids say about vLLM's blocks, whatever both sizes are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from reference import block_names
from sim_helpers import make_trace

from tuner.engines.simulated.prefixes import prefixes_of

PATHS = st.lists(st.integers(0, 1), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.integers(0, 7)),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([1, 3, 4, 16, 32]),
)
def test_two_prompts_share_the_runs_that_they_have_blocks_in_common(
    paths: list[tuple[list[int], int]], size: int
) -> None:
    tree: dict[tuple[int, ...], int] = {}
    ids = [[tree.setdefault(tuple(path[: n + 1]), len(tree)) for n in range(len(path))] for path, _ in paths]
    prompts = [8 * len(path) - cut for path, cut in paths]
    trace = make_trace([0.0] * len(paths), prompts, 1, ids, 8)
    found = prefixes_of(trace, size)
    names = [block_names(i, prompts[i], 1, ids[i], 8, size) for i in range(len(paths))]
    for i in range(len(paths)):
        for j in range(i):
            common = 0
            for one, other in zip(names[i], names[j], strict=False):
                if one != other:
                    break
                common += 1
            shared = 0
            for one, other in zip(found.chains[i], found.chains[j], strict=False):
                if one != other:
                    break
                shared += found.blocks[one]
            assert shared == common


def test_long_prompts_cost_a_few_runs() -> None:
    # 20 requests behind one prefix of 20 trace blocks, each with 5 of its own
    ids = [[*range(20), *range(100 + 5 * i, 105 + 5 * i)] for i in range(20)]
    found = prefixes_of(make_trace([0.0] * 20, 25 * 512, 1, ids, 512), 16)
    assert found.chains == [(0,)] * 20
    assert found.blocks == [20 * 32]


def test_nothing_shared_without_ids() -> None:
    assert prefixes_of(make_trace([0.0, 1.0], 100, 1), 16).chains == [(), ()]
