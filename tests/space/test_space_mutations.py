"""Damaged spaces and profiles: read, or refused in one line, never an uncaught exception.

KIMI_TUNE_MUTATIONS sets how many are tried of each.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import mutated

from tuner.errors import BadRequest
from tuner.hardware import find_gpu
from tuner.models import find_model
from tuner.profiles import load_profile
from tuner.space import load_space
from tuner.traces import shipped_trace

MUTATIONS = int(os.environ.get("KIMI_TUNE_MUTATIONS", "150"))
SPACES = sorted((Path(__file__).parents[2] / "search_spaces").glob("*.yaml"))
ALIASES = b"""a: &a [1, 2]
parameters: {seed: *a, max-num-seqs: {low: 1, high: 8, log: true}}
fixed: {x: &b {c: *a}}
"""
PROFILE = b"""schema: 2
study: s
gpu: A100-80G
model: {name: m}
slo: {e2e_p99_s: 30.0}
winner: {flags: {max-num-seqs: 64}}
"""


def refused_at_worst(read: Callable[[], object]) -> None:
    try:
        read()
    except BadRequest as error:
        assert "\n" not in error.what and error.what


@pytest.mark.parametrize(
    "source", [*SPACES, ALIASES], ids=lambda s: s.stem if isinstance(s, Path) else "yaml"
)
def test_damaged_spaces(source: Path | bytes, tmp_path: Path) -> None:
    data = source.read_bytes() if isinstance(source, Path) else source
    rng, path = random.Random(len(data)), tmp_path / "space.yaml"
    gpu, shape, trace = find_gpu("A100-80G"), find_model("kimi-k2.6-awq"), shipped_trace()

    def read() -> object:
        return load_space(path, gpu=gpu, shape=shape, trace=trace, version="0.21.0", fixed={})

    for _ in range(MUTATIONS // (len(SPACES) + 1)):
        path.write_bytes(mutated(rng, data))
        refused_at_worst(read)


def test_damaged_profiles(tmp_path: Path) -> None:
    rng, path = random.Random(1), tmp_path / "profile.yaml"
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(rng, PROFILE))
        refused_at_worst(lambda: load_profile(path))
