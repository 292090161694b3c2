"""A profile: what won, on what, how it was measured, and against what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tuner.profiles.cost import GpuCost
from tuner.profiles.evidence import (
    CardsRow,
    Drift,
    FinalRow,
    FlagGain,
    PredictionRow,
    SeparateQueue,
    Shift,
    Tie,
)
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue

SCHEMA_VERSION = 2
_CARDS = (
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "prefill-context-parallel-size",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A configuration's figures in the finals. `p99_s` is of the metric nearest to its limit, at
    `throughput_rps`.

    `flags` are those that the launch set, `command` the whole launch as an argument list.
    """

    flags: LaunchConfig
    command: tuple[str, ...]
    throughput_rps: float
    output_tps: float
    p99_s: float | None
    p99_interval_s: tuple[float | None, float | None]
    mean_s: float | None
    users: int
    kv_tokens: int
    startup_s: float
    effective: Mapping[str, FlagValue] = field(default_factory=dict)
    note: str = ""

    @property
    def cards(self) -> int:
        """How many GPUs the launch takes: the product of its parallel sizes."""
        sizes = (self.flags.get(flag) or self.effective.get(flag) for flag in _CARDS)
        return prod(size for size in sizes if type(size) is int and size > 0)


@dataclass(frozen=True, slots=True)
class UsersRow:
    """One line of the users' table: so many concurrent users, mean and P99 of end-to-end latency in
    seconds.
    """

    users: int
    default_mean_s: float | None
    default_p99_s: float | None
    tuned_mean_s: float | None
    tuned_p99_s: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """What is exported and deployed. `provenance` is `measured` or `simulated`; `window` the part of the
    trace (as fractions of its length) and `start_rps` the load at which the finals began, so that
    `kimi-tune simulate --find-max` can repeat them.

    `gain_interval` is the interval of the gain, `brittle` says at which small shift the winner breaks ("" if
    at none), `machine` describes where it was measured without naming the host (GPU, count, driver, vLLM,
    torch, CPU, cores, memory), `traffic` holds the figures of the trace that `kimi-tune check` compares.
    """

    study: str
    gpu: str
    model: str
    vllm_version: str
    slo: Mapping[str, float]
    trace: Mapping[str, Any]
    window: tuple[float, float]
    start_rps: float
    requests: int
    seed: int
    recommendation: str
    winner: Measured
    baseline: Measured
    gain: float | None
    provenance: str
    driver: str | None = None
    users_table: tuple[UsersRow, ...] = ()
    created: str = ""
    gain_interval: tuple[float, float] | None = None
    ties: tuple[Tie, ...] = ()
    flag_gains: tuple[FlagGain, ...] = ()
    sensitivity: tuple[Shift, ...] = ()
    brittle: str = ""
    separate: SeparateQueue | None = None
    finals: tuple[FinalRow, ...] = ()
    drift: Drift | None = None
    predictions: tuple[PredictionRow, ...] = ()
    by_cards: tuple[CardsRow, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    traffic: Mapping[str, Any] = field(default_factory=dict)
    cost: GpuCost | None = None
    schema: int = SCHEMA_VERSION

    @property
    def per_card_rps(self) -> float:
        """The winner's capacity in requests/s for each GPU that it takes."""
        return self.winner.throughput_rps / self.winner.cards
