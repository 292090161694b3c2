"""Files for the tests of traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def trace_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes bytes to a file and gives its path."""

    def write(data: bytes, name: str = "requests.log") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write
