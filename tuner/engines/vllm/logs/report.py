"""What a log says, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.engines.base import Bound, FailureKind
from tuner.masking import MASK, SECRET_FLAGS, mask
from tuner.spec import FlagValue


@dataclass(frozen=True, slots=True)
class LogReport:
    """What a vLLM log tells of the last start in it.

    `ready`: it came up, and did not die. `kind`, `cause`, `mend` and `bounds` say why not; each bound holds
    by itself for the configuration that was started. `args` are the flags it was started with, `effective`
    further values in force, both by flag names without the dashes. `phase` is where the start stood at the
    log's end, `phases` the seconds that vLLM itself reports. `served`: it had been up before it failed.
    """

    ready: bool
    kind: FailureKind | None = None
    cause: str = ""
    mend: str = ""
    bounds: tuple[Bound, ...] = ()
    kv_tokens: int | None = None
    weights_gib: float | None = None
    startup_s: float | None = None
    available_kv_gib: float | None = None
    graph_gib: float | None = None
    max_concurrency: float | None = None
    version: str | None = None
    args: Mapping[str, FlagValue] = field(default_factory=dict)
    effective: Mapping[str, FlagValue] = field(default_factory=dict)
    phase: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    served: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cause", mask(self.cause))
        if hidden := SECRET_FLAGS & self.args.keys():
            object.__setattr__(self, "args", {**self.args, **dict.fromkeys(hidden, MASK)})

    def lines(self, verbose: bool = False) -> list[str]:
        """The report for people, line by line."""
        said = ["ready" if self.ready else f"failed ({self.kind}): {self.cause}"]
        if self.mend:
            said.append(f"mend: {self.mend}")
        for bound in self.bounds:
            low = f" at least {_number(bound.min)}" if bound.min is not None else ""
            high = f" at most {_number(bound.max)}" if bound.max is not None else ""
            said.append(f"bound: {bound.flag}{low}{high}")
        figures = {
            "vLLM": self.version,
            "KV tokens": f"{self.kv_tokens:,}" if self.kv_tokens is not None else None,
            "weights": f"{self.weights_gib:g} GiB" if self.weights_gib is not None else None,
            "memory for KV": f"{self.available_kv_gib:g} GiB" if self.available_kv_gib is not None else None,
            "start-up": f"{self.startup_s:.0f} s" if self.startup_s is not None else None,
        }
        said += [f"{name}: {value}" for name, value in figures.items() if value is not None]
        if verbose:
            said += [f"{name}: {seconds:g} s" for name, seconds in self.phases.items()]
            said += [f"{name} = {value}" for name, value in {**self.effective, **self.args}.items()]
        return [*said, *(f"note: {note}" for note in self.notes)]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `bound` is {flag: {"min": …, "max": …}}, and null where a figure is not "
        "known."""
        bound: dict[str, dict[str, float | int]] = {}
        for taught in self.bounds:
            limits = {"min": taught.min, "max": taught.max}
            bound.setdefault(taught.flag, {}).update(
                {n: _number(v) for n, v in limits.items() if v is not None}
            )
        return {
            "ready": self.ready,
            "kind": self.kind.value if self.kind else None,
            "cause": self.cause,
            "bound": bound,
            "mend": self.mend,
            "kv_tokens": self.kv_tokens,
            "weights_gib": self.weights_gib,
            "startup_s": self.startup_s,
            "available_kv_gib": self.available_kv_gib,
            "graph_gib": self.graph_gib,
            "max_concurrency": self.max_concurrency,
            "version": self.version,
            "args": dict(self.args),
            "effective": dict(self.effective),
            "phase": self.phase,
            "phases": dict(self.phases),
            "served": self.served,
            "notes": list(self.notes),
        }


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value
