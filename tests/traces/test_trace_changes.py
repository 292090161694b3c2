"""Windows, compression, steps and dispersion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_examples import make_trace, traces

from tuner.errors import BadRequest
from tuner.traces import (
    Trace,
    compress_time,
    cv_of_gaps,
    dispersion,
    index_of_dispersion,
    shipped_trace,
    spread_steps,
    time_step_s,
    window,
)


@given(trace=traces(), cut=st.floats(0.01, 0.99))
@settings(max_examples=40, deadline=None)
def test_two_windows_are_the_whole(trace: Trace, cut: float) -> None:
    parts = []
    for low, high in ((0.0, cut), (cut, 1.0)):
        try:
            parts.append(window(trace, low, high))
        except BadRequest:
            continue
    assert sum(map(len, parts)) == len(trace)
    assert np.concatenate([part.input_tokens for part in parts]).tolist() == trace.input_tokens.tolist()
    assert np.concatenate([part.block_ids for part in parts]).tolist() == trace.block_ids.tolist()
    for part in parts:
        assert part.arrival_s[0] == 0
        assert set(part.session.tolist()) == set(range(int(part.session.max()) + 1))


def test_the_whole_window_is_the_trace() -> None:
    chat = shipped_trace()
    assert window(chat, 0.0, 1.0).digest() == chat.digest()
    half = window(chat, 0.5, 1.0)
    assert half.source.changes[-1]["change"] == "window"
    assert half.source.changes[-1]["low"] == 0.5
    assert half.duration_s == pytest.approx(600, abs=10)


@pytest.mark.parametrize("low, high", [(0.5, 0.5), (0.6, 0.5), (-0.1, 1), (0, 1.1), (math.nan, 1)])
def test_no_such_window(low: float, high: float) -> None:
    with pytest.raises(BadRequest, match="window"):
        window(shipped_trace(), low, high)


def test_an_empty_window() -> None:
    with pytest.raises(BadRequest, match="no request between 40% and 60%"):
        window(make_trace([0, 100]), 0.4, 0.6)


def test_a_window_where_all_arrive_at_once_goes_by_requests() -> None:
    assert len(window(make_trace([0.0] * 10), 0.0, 0.5)) == 5


def test_compression_keeps_the_variation_and_is_recorded() -> None:
    chat = shipped_trace()
    fast = compress_time(chat, 4.0)
    assert fast.rate_rps == pytest.approx(4 * chat.rate_rps)
    assert cv_of_gaps(fast.arrival_s) == pytest.approx(cv_of_gaps(chat.arrival_s))
    change = fast.source.changes[-1]
    assert change["change"] == "compress-time" and change["factor"] == 4.0
    assert change["dispersion_after"] == dispersion(fast.arrival_s)
    for factor in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BadRequest):
            compress_time(chat, factor)


def test_dispersion_of_known_arrivals() -> None:
    regular = np.arange(10_000) / 10
    assert index_of_dispersion(regular, 1.0) == pytest.approx(0.0, abs=0.01)
    assert cv_of_gaps(regular) == pytest.approx(0.0, abs=1e-6)
    rng = np.random.default_rng(0)
    poisson = np.cumsum(rng.exponential(0.1, 50_000))
    assert index_of_dispersion(poisson, 1.0) == pytest.approx(1.0, abs=0.1)
    assert cv_of_gaps(poisson) == pytest.approx(1.0, abs=0.03)
    in_tens = np.repeat(np.cumsum(rng.exponential(1.0, 5_000)), 10)
    assert index_of_dispersion(in_tens, 60.0) == pytest.approx(10.0, rel=0.4)


def test_dispersion_of_sparse_arrivals_counts_the_empty_windows() -> None:
    arrival = np.array([0.0, 0.1, 50_000.0, 99_999.5])
    counts = np.zeros(99_999)
    counts[0], counts[50_000] = 2, 1
    assert index_of_dispersion(arrival, 1.0) == pytest.approx(counts.var() / counts.mean())


def test_dispersion_where_it_is_undefined() -> None:
    assert dispersion(np.array([0.0])) == {"iod_1s": None, "iod_60s": None, "cv_gaps": None}
    assert dispersion(np.zeros(5)) == {"iod_1s": None, "iod_60s": None, "cv_gaps": None}


def test_steps_are_found_and_spread() -> None:
    at = np.repeat(np.arange(40) * 3.0, 5)
    coarse = make_trace(at)
    assert time_step_s(coarse) == 3.0
    even = spread_steps(coarse)
    assert np.allclose(np.diff(even.arrival_s), 0.6)
    assert even.source.changes[-1]["step_s"] == 3.0
    assert time_step_s(even) == 0.6


def test_steps_with_a_millisecond_of_jitter() -> None:
    rng = np.random.default_rng(0)
    at = np.repeat(np.sort(np.arange(60) * 3.0 + rng.integers(-1, 2, 60) / 1000), 4)
    assert time_step_s(make_trace(at - at[0])) == 3.0


def test_fine_timestamps_have_no_step() -> None:
    chat = shipped_trace()
    assert time_step_s(chat) is None
    with pytest.raises(BadRequest, match="do not come in steps"):
        spread_steps(chat)
