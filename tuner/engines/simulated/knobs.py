"""The few numbers that calibration fits: groups of coefficients, each stretched by one factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.engines.simulated.coefficients import Coefficients


@dataclass(frozen=True, slots=True)
class Knob:
    """One factor on the time that a group of coefficients stands for.

    `shares` of the data sheet are divided by it, `seconds` multiplied. `spread` is the standard deviation of
    its logarithm before anything was measured.
    """

    shares: tuple[str, ...] = ()
    seconds: tuple[str, ...] = ()
    spread: float = 0.25


KNOBS: dict[str, Knob] = {
    "weights": Knob(shares=("bandwidth",)),
    "cache": Knob(shares=("kv_bandwidth", "mla_bandwidth")),
    "matmul": Knob(shares=("matmul", "expert_matmul")),
    "attention": Knob(shares=("attention",)),
    "device": Knob(
        seconds=("step_s", "layer_s", "mla_layer_s", "expert_layer_s", "all_reduce_s"), shares=("link",)
    ),
    "host": Knob(seconds=("host_s", "launch_s", "eager_s")),
    "sequence": Knob(seconds=("host_seq_s",), spread=0.3),
    "frontend": Knob(seconds=("frontend_token_s", "frontend_chunk_s", "frontend_crowd_s"), spread=0.3),
}
SPREADS = np.array([knob.spread for knob in KNOBS.values()])
ELASTICITY = 1.1
"""How much capacity goes with the time of a step, in logs: queues make it a little more than one."""
_BOUND_BY = {"weights": 0.35, "cache": 0.2, "matmul": 0.35, "device": 0.1}
BOUND_BY = np.array([_BOUND_BY.get(name, 0.0) for name in KNOBS])
"""About how much of a step's time each knob stands for; the shares add up to one."""


def stretched(base: Coefficients, logs: Sequence[float]) -> Coefficients:
    """The coefficients with every knob's time stretched by exp of its entry in `logs`."""
    changed: dict[str, float] = {}
    for knob, log in zip(KNOBS.values(), logs, strict=True):
        factor = math.exp(log)
        changed |= {name: getattr(base, name) / factor for name in knob.shares}
        changed |= {name: getattr(base, name) * factor for name in knob.seconds}
    return replace(base, **changed)
