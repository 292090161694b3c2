"""The order of the seeds: launches that find vLLM's compile cache filled come together."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tuner.study.seeds import clustered

DEFAULT = {"max-num-seqs": 256, "max-num-batched-tokens": 8192, "gpu-memory-utilization": 0.9}


def test_cheap_changes_lie_inside_expensive_ones() -> None:
    more = {**DEFAULT, "max-num-batched-tokens": 16384}
    memory = {**DEFAULT, "gpu-memory-utilization": 0.95}
    both = {**more, "gpu-memory-utilization": 0.95}
    seqs = {**DEFAULT, "max-num-seqs": 1024}  # graphs end at 512 for 256 sequences and for 1024
    few = {**DEFAULT, "max-num-seqs": 64}
    assert clustered([more, memory, few, both, seqs], DEFAULT) == [memory, seqs, more, both, few]


POINTS = st.lists(
    st.fixed_dictionaries(
        {
            "max-num-seqs": st.sampled_from([32, 64, 256, 1024]),
            "block-size": st.sampled_from([16, 32]),
            "enable-prefix-caching": st.booleans(),
        }
    ),
    max_size=12,
)


@given(POINTS)
def test_nothing_is_lost_and_no_compilation_is_paid_twice(points: list[dict[str, Any]]) -> None:
    ordered = clustered(points, DEFAULT)
    assert sorted(map(repr, ordered)) == sorted(map(repr, points))
    keys = [(min(2 * p["max-num-seqs"], 512), p["block-size"]) for p in ordered]
    changes = sum(a != b for a, b in zip(keys, keys[1:], strict=False))
    assert changes == max(len(set(keys)) - 1, 0)
    assert clustered(ordered, DEFAULT) == ordered
