"""Fixtures of the model tests."""

from __future__ import annotations

from typing import Any

import pytest
from model_configs import ALL


@pytest.fixture
def configs() -> dict[str, dict[str, Any]]:
    """Well-known config.json by name, each a copy."""
    return {name: dict(value) for name, value in ALL.items()}
