"""The simulated engine keeps the contract of every engine."""

from __future__ import annotations

import pytest
from contract import EngineContract

from tuner.engines.simulated import SimulatedEngine
from tuner.hardware import find_gpu
from tuner.models import find_model
from tuner.space import LaunchConfig


class TestSimulatedEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> SimulatedEngine:
        return SimulatedEngine(find_gpu("A100-80G"), find_model("kimi-k2.6-awq"), "0.21.0")

    @pytest.fixture
    def bad(self) -> LaunchConfig:
        return LaunchConfig.of({"gpu-memory-utilization": 0.1})
