"""Figures in words: units, honest digits, no "100%" that is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (math.nan, "-"), (math.inf, "over"), (0.8449, "0.84 s"), (24.06, "24.1 s")],
)
def test_seconds(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(45, "45 s"), (720, "12 min"), (3900, "65 min"), (7500, "2 h 05 min")]
)
def test_span(value: float, text: str) -> None:
    assert words.span(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.0333, "0.0333"), (4.189, "4.19"), (126.4, "126")])
def test_rate(value: float, text: str) -> None:
    assert words.rate(value) == text


@given(st.floats(0, 1))
def test_a_percentage_never_overstates(share: float) -> None:
    text = words.percent(share)
    assert (text == "100%") == (share == 1.0)
    assert float(text.removesuffix("%")) / 100 <= share + 1e-12


def test_gain_and_changes() -> None:
    assert words.gain(1.42) == "+42%"
    assert words.gain(None) == "-"
    assert words.changes({}) == "vLLM's defaults"
    changed = {"max-num-seqs": 64, "enable-prefix-caching": False, "cudagraph-capture-sizes": (1, 2)}
    assert words.changes(changed) == "cudagraph-capture-sizes=1,2 enable-prefix-caching=off max-num-seqs=64"
