"""Figures and picture of a trace."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from trace_examples import make_trace, traces

from tuner.traces import Trace, inspect, plot_svg, shipped_trace
from tuner.traces.inspection import coverage_by_length, prefix_reuse


@given(trace=traces())
@settings(max_examples=35, deadline=None)
def test_any_trace_has_figures_and_a_picture(trace: Trace) -> None:
    figures = inspect(trace)
    told = json.loads(json.dumps(figures.to_json(), allow_nan=False))
    assert told["requests"] == len(trace) == sum(count for _, count in told["length_histogram"])
    assert told["sessions"] == len(set(trace.session.tolist()))
    assert set(told) == set(figures.__dataclass_fields__)
    ElementTree.fromstring(plot_svg(figures))


@given(trace=traces())
@settings(max_examples=35, deadline=None)
def test_prefix_reuse_against_a_plain_count(trace: Trace) -> None:
    if not trace.block_tokens:
        assert prefix_reuse(trace) is None
        return
    seen: set[int] = set()
    reused = 0
    for index in range(len(trace)):
        left = int(trace.input_tokens[index])
        for block in trace.blocks_of(index).tolist():
            reused += min(left, trace.block_tokens) if block in seen else 0
            left -= trace.block_tokens
            seen.add(block)
    assert prefix_reuse(trace) == pytest.approx(reused / trace.input_tokens.sum())


def test_rate_over_time_adds_up() -> None:
    chat = shipped_trace()
    rates = inspect(chat).rate_over_time
    width = chat.duration_s / len(rates)
    assert sum(rate * width for _, rate in rates) == pytest.approx(len(chat), rel=1e-3)


def test_coverage_ends_where_all_fit() -> None:
    trace = make_trace([0, 1, 2], blocks=[[1], [2] * 100, [3] * 600], block_tokens=16)
    two_of_three = pytest.approx(2 / 3)
    assert coverage_by_length(trace) == {
        2048: two_of_three,
        4096: two_of_three,
        8192: two_of_three,
        16384: 1.0,
    }


def test_lengths_by_nearest_rank() -> None:
    trace = make_trace(np.arange(100), output_tokens=np.arange(1, 101))
    figures = inspect(trace)
    assert figures.output_tokens == {"mean": 50.5, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def test_figures_of_all_at_once() -> None:
    figures = inspect(make_trace([0.0] * 3))
    assert figures.rate_rps is None and figures.rate_over_time == ()
    ElementTree.fromstring(plot_svg(figures))
