"""Shapes for the simulator's tests."""

from __future__ import annotations

import pytest

from tuner.models import ModelShape


@pytest.fixture
def llama_8b() -> ModelShape:
    """Llama-3.1-8B's shape in bf16."""
    return ModelShape(
        name="llama-8b",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        intermediate=14336,
        vocab=128256,
        max_model_len=131072,
    )
