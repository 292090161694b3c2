"""The simulator's benchmark runs, and prints its figures; how fast it is asserts nothing."""

from __future__ import annotations

import pytest
from simulator import measure


def test_prints_requests_simulated_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    figures = list(measure(400, repeats=1))
    with capsys.disabled():
        for name, speed, capacity, trace in figures:
            print(f"\n{name}: {speed:,.0f} requests simulated/s ({len(trace)}; capacity {capacity:.2f}/s)")
    assert figures
    assert all(speed > 0 and capacity > 0 for _, speed, capacity, _ in figures)
