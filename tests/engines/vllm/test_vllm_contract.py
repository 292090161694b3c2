"""The real engine over a stand-in keeps the contract of every engine."""

from __future__ import annotations

import pytest
from contract import EngineContract
from vllm_helpers import Faults

from tuner.space import LaunchConfig


class TestVllmEngine(EngineContract):
    @pytest.fixture
    def bad(self, faults: Faults) -> LaunchConfig:
        faults.set("dies", "ValueError: No available memory for the cache blocks.")
        return LaunchConfig.of({"max-num-seqs": 4})
