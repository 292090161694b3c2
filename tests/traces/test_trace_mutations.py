"""Damaged files of every format: read, or refused in one line, never an uncaught exception.

KIMI_TUNE_MUTATIONS sets how many are tried (over all formats).
"""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

import pytest
from damage import mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_examples import EXAMPLES

from tuner.errors import BadRequest
from tuner.traces import NestedLoads, inspect, load_trace

MUTATIONS = int(os.environ.get("KIMI_TUNE_MUTATIONS", "1350"))


def survives(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        trace = load_trace(path)
    except BadRequest as error:
        assert "\n" not in error.what
        return
    assert trace.arrival_s[0] == 0 and (trace.arrival_s[1:] >= trace.arrival_s[:-1]).all()
    assert trace.input_tokens.min() > 0 and trace.output_tokens.min() > 0
    assert len(trace.block_ids) == trace.block_offsets[-1]
    inspect(trace)
    loads = NestedLoads(trace, requests=20)
    assert len(loads.at(loads.natural_rps)) == 20


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_random_damage(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    data, path = EXAMPLES[name].text(), tmp_path / "damaged"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(MUTATIONS // len(EXAMPLES)):
            survives(path, mutated(rng, data))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    survives(tmp_path / "bytes", data)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(EXAMPLES)), row=st.integers(0, 2), value=_VALUES, data=st.data())
def test_any_value_in_any_field(
    tmp_path: Path, name: str, row: int, value: object, data: st.DataObject
) -> None:
    example = EXAMPLES[name]
    field = data.draw(st.sampled_from(example.fields))
    survives(tmp_path / "value", example.with_field(row, field, value))
