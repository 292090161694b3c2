"""Flags that can change what the model answers: searched only where somebody says that they may be."""

from __future__ import annotations

from dataclasses import replace

from tuner.space.flags import QUALITY_FLAGS
from tuner.space.parameter import Parameter, ParameterKind
from tuner.space.space import SearchSpace

SEARCHED = (Parameter("kv-cache-dtype", ParameterKind.CHOICE, choices=("auto", "fp8"), default="auto"),)
"""What a built-in space gains where these flags are allowed."""


def without_quality_flags(space: SearchSpace) -> SearchSpace:
    """The space without the parameters that can change the answers; what is fixed stays."""
    kept = tuple(p for p in space.parameters if p.name.split(".", 1)[0] not in QUALITY_FLAGS)
    return replace(space, parameters=kept)


def with_quality_flags(space: SearchSpace) -> SearchSpace:
    """The space with those parameters, but for what it fixes or holds already."""
    held = {p.name for p in space.parameters} | set(space.fixed)
    added = [p for p in SEARCHED if p.name not in held]
    return replace(space, parameters=tuple(sorted([*space.parameters, *added], key=lambda p: p.name)))
