"""A stand-in for vLLM with faults on demand."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vllm_helpers import LAUNCHER, QUICK, Faults

from tuner.engines.vllm import VllmEngine
from tuner.hardware import find_gpu


@pytest.fixture(scope="session", autouse=True)
def short_collections() -> None:
    """A replay collects garbage before it begins; all that pytest holds need not be visited each time."""
    gc.freeze()


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Faults]:
    """The fault of the next stand-in; after the test no process of it may be left."""
    faults = Faults(tmp_path / "fault")
    yield faults
    assert not (left := faults.survivors()), left


@pytest.fixture
def make_engine(faults: Faults, tmp_path: Path) -> Iterator[Callable[..., VllmEngine]]:
    """Engines over the stand-in; `launcher`, `limits` and the like can be given."""
    made: list[VllmEngine] = []
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")

    def make(**given: object) -> VllmEngine:
        options: dict[str, object] = {
            "launcher": LAUNCHER,
            "version": "0.21.0",
            "env": {"STANDIN_FAULT": str(faults.file)},
            "limits": QUICK,
            "state_folder": tmp_path / "state",
            **given,
        }
        installed = options.pop("installed", None)
        gpu = options.pop("gpu", find_gpu("cpu"))
        engine = VllmEngine(installed, model=str(model), gpu=gpu, **options)  # type: ignore[arg-type]
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine: Callable[..., VllmEngine]) -> VllmEngine:
    return make_engine()
