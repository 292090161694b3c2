"""How likely a configuration is to crash, beyond what arithmetic tells: by which launches crashed so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue

_USUAL = 0.03
_WEIGHT = 0.6
_TIGHT, _RISK, _MOST = 0.91, 5.0, 0.3
"""Above this gpu-memory-utilization little is left for what vLLM's profiling run does not see."""
HUNGRY = ("gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs", "max-model-len")
"""Flags that ask for more memory as they grow: who crashes with less of each crashes with more."""
_SCALES = {"gpu-memory-utilization": 0.03}
_OCTAVE = math.log(2.0)


def crash_odds(
    config: LaunchConfig,
    dead: Sequence[LaunchConfig],
    alive: Sequence[LaunchConfig],
    effective: Mapping[str, FlagValue],
) -> float:
    """Odds from 0 to 1; `effective` holds the values of flags that a configuration leaves out."""
    usual = _USUAL
    share = _number(config, "gpu-memory-utilization", effective)
    if share is not None and share > _TIGHT:
        usual = min(usual + _RISK * (share - _TIGHT), _MOST)
    if not dead and not alive:
        return usual
    for_it = sum(_alike(config, other, effective, 1.0) for other in dead)
    against = sum(_alike(config, other, effective, -1.0) for other in alive)
    return (usual * _WEIGHT + for_it) / (_WEIGHT + for_it + against)


def _alike(
    config: LaunchConfig, other: LaunchConfig, effective: Mapping[str, FlagValue], sign: float
) -> float:
    """1 where `config` asks for at least as much memory (sign 1) or at most as much (-1), less beyond."""
    away = 0.0
    for flag in HUNGRY:
        mine, its = _number(config, flag, effective), _number(other, flag, effective)
        if mine is None or its is None:
            continue
        if flag in _SCALES:
            short = (its - mine) / _SCALES[flag]
        else:
            short = math.log(its / mine) / _OCTAVE
        away += max(sign * short, 0.0)
    return math.exp(-away)


def _number(config: LaunchConfig, flag: str, effective: Mapping[str, FlagValue]) -> float | None:
    value = config.get(flag, effective.get(flag))
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return float(value)
