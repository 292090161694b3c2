"""What the user asked for: the tune job's specification, its parts, and the units people write them in."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tuner.errors import BadRequest

FlagValue = bool | int | float | str | tuple["FlagValue", ...] | None
"""A value of a vLLM flag, as YAML gives it (lists become tuples)."""

_DURATION = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*(ms|s|m|min|h|d)?\s*$")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration_s(text: str, *, what: str = "duration") -> float:
    """Seconds of "30s", "500ms", "2h" or a plain number of seconds.

    Raises:
        BadRequest: not a duration, or not above zero.
    """
    match = _DURATION.match(text)
    value = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if not 0.0 < value < math.inf:
        raise BadRequest(f"{what}: {text!r} is not a duration", "write it like 30s, 500ms or 2h")
    return value


class EngineChoice(StrEnum):
    """Which engine runs the trials; AUTO takes vLLM where a matching GPU and vLLM are present."""

    AUTO = "auto"
    VLLM = "vllm"
    SIM = "sim"


class LoadMode(StrEnum):
    """How load is offered: by the trace's arrival times, or by a fixed number of users without think time."""

    RATE = "rate"
    USERS = "users"


class SessionMode(StrEnum):
    """When the turns of a session are sent: as recorded, or not before the answer to the turn before."""

    RECORDED = "recorded"
    CAUSAL = "causal"


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits in seconds on the 99th percentile of end-to-end latency, time to first token, time per token."""

    e2e_p99_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None

    def limits(self) -> dict[str, float]:
        """The limits that are set, by metric name (`e2e`, `ttft`, `tpot`), in seconds."""
        named = {"e2e": self.e2e_p99_s, "ttft": self.ttft_p99_s, "tpot": self.tpot_p99_s}
        return {name: limit for name, limit in named.items() if limit is not None}

    def largest_s(self) -> float:
        """The largest limit, which decides how long a replay has to last."""
        return max(self.limits().values(), default=0.0)

    def to_json(self) -> dict[str, float]:
        """The limits that are set, as `e2e_p99_s` and so on."""
        return {f"{name}_p99_s": limit for name, limit in self.limits().items()}


@dataclass(frozen=True, slots=True)
class Budget:
    """How much the search may cost: launches of the search, and engine time in seconds (None: no limit)."""

    trials: int = 16
    engine_s: float | None = None


@dataclass(frozen=True, slots=True)
class TuneSpec:
    """One tune job. `gpu` as written ("A100-80G", "2xH100-80G", "cpu", "auto"); `trace` None: the shipped
    one.
    """

    gpu: str
    slo: Slo
    model: str
    trace: Path | None = None
    engine: EngineChoice = EngineChoice.AUTO
    space: Path | None = None
    fixed: Mapping[str, FlagValue] = field(default_factory=dict)
    load: LoadMode = LoadMode.RATE
    sessions: SessionMode = SessionMode.RECORDED
    requests: int = 1000
    coverage: float | None = None
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    vllm_version: str | None = None

    def identity(self) -> dict[str, Any]:
        """What makes two jobs the same study: everything but the budget, as plain JSON values."""
        return {
            "gpu": self.gpu,
            "slo": self.slo.to_json(),
            "model": self.model,
            "trace": str(self.trace) if self.trace else None,
            "engine": self.engine.value,
            "space": str(self.space) if self.space else None,
            "fixed": dict(sorted(self.fixed.items())),
            "load": self.load.value,
            **({"sessions": self.sessions.value} if self.sessions is not SessionMode.RECORDED else {}),
            "requests": self.requests,
            "coverage": self.coverage,
            "seed": self.seed,
            "vllm_version": self.vllm_version,
        }


def digest(value: object) -> str:
    """Short hexadecimal digest of plain JSON values, the same in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
