"""A GPU, a model and a trace to load spaces for, and vLLM source trees written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tuner.hardware import Gpu, find_gpu
from tuner.models.shape import ModelShape
from tuner.space import FlagTable, SearchSpace, load_space
from tuner.spec import FlagValue
from tuner.traces.trace import Trace, TraceSource


def trace_of(total_tokens: list[int]) -> Trace:
    """One request a second whose prompt and answer together have these lengths; each answers one token."""
    n = len(total_tokens)
    return Trace(
        arrival_s=np.arange(n, dtype=np.float64),
        input_tokens=np.array(total_tokens, dtype=np.int32) - 1,
        output_tokens=np.ones(n, dtype=np.int32),
        session=np.arange(n, dtype=np.int64),
        block_offsets=np.zeros(n + 1, dtype=np.int64),
        block_ids=np.zeros(0, dtype=np.int64),
        block_tokens=0,
        source=TraceSource("test"),
    )


@pytest.fixture
def gpu() -> Gpu:
    return find_gpu("A100-80G")


@pytest.fixture
def shape() -> ModelShape:
    return ModelShape("m", 32, 4096, 32, 8, 128, 14336, 128256, max_model_len=131072)


@pytest.fixture
def trace() -> Trace:
    """1000 requests: 980 of 500 tokens, 15 of 3,000, 5 of 20,000."""
    return trace_of([500] * 980 + [3000] * 15 + [20000] * 5)


@pytest.fixture
def make_trace() -> Callable[[list[int]], Trace]:
    return trace_of


Load = Callable[..., SearchSpace]


@pytest.fixture
def load(tmp_path: Path, gpu: Gpu, shape: ModelShape, trace: Trace) -> Load:
    """Load a space from a text (or a path, or None for the shipped one)."""

    def load(
        source: str | Path | None,
        *,
        fixed: dict[str, FlagValue] | None = None,
        version: str = "0.21.0",
        coverage: float | None = None,
        table: FlagTable | None = None,
        on: Gpu = gpu,
        traffic: Trace = trace,
    ) -> SearchSpace:
        path = source
        if isinstance(source, str):
            path = tmp_path / "space.yaml"
            path.write_text(source)
        return load_space(
            path,
            gpu=on,
            shape=shape,
            trace=traffic,
            version=version,
            fixed=fixed or {},
            coverage=coverage,
            table=table,
        )

    return load
