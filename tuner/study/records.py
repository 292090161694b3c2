"""What a study tells: its plan, its trials, its result, and the observer who watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuner.engines.base import FailureKind, Outcome
from tuner.measure import Capacity, Judgement
from tuner.profiles.profile import Measured, Profile, UsersRow
from tuner.space.config import LaunchConfig
from tuner.spec import LoadMode


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done and how long it should take, shown before anything starts.

    `coverage` maps each max-model-len that the space holds to the share of the trace that fits it.
    """

    study: str
    engine: str
    gpu: str
    model: str
    vllm_version: str
    slo: Mapping[str, float]
    trace: str
    trace_notes: tuple[str, ...]
    requests: int
    trace_rps: float
    replay_s: float
    launch_s: float
    trials: int
    finals: int
    engine_s: float
    parameters: Mapping[str, str]
    fixed: Mapping[str, Any]
    feasible_share: float
    coverage: Mapping[int, float]
    sampler: str
    notes: tuple[str, ...] = ()
    budget_s: float | None = None
    """Engine time that the user gave, if any, and how many launches of the search should fit it."""
    budget_trials: int | None = None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One finished trial. `value_rps` is what Optuna was told, `p99_s` and `limit_s` belong to one metric."""

    number: int
    origin: str
    config: LaunchConfig
    outcome: Outcome
    value_rps: float
    p99_s: float | None = None
    limit_s: float | None = None
    lost_at_rps: float | None = None
    failure: FailureKind | None = None
    cause: str = ""
    engine_s: float = 0.0
    changed: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that differ from the baseline's effective values."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The end of a study, with the keys of the design's `--json`."""

    study: str
    engine: str
    gpu: str
    model: str
    slo: Mapping[str, float]
    recommendation: str
    winner: Measured | None
    baseline: Measured
    gain: float | None
    trials: Mapping[str, int]
    launches: int
    engine_seconds: float
    profile: Profile | None
    users_table: tuple[UsersRow, ...] = ()
    closest: str = ""
    """Where nothing meets the SLO: the closest configuration and what would be needed."""
    load: LoadMode = LoadMode.RATE
    """What `gain` compares: requests a second, or users."""
    resumed: bool = False


class Observer(Protocol):
    """Watches a study; the console is one, the tests have another."""

    def planned(self, plan: Plan) -> None: ...

    def trial_started(self, number: int, origin: str, config: LaunchConfig) -> None: ...

    def note(self, text: str) -> None:
        """Something that the user should know at once."""

    def phase(self, text: str) -> None:
        """What the launch or the trial is doing now."""

    def replay_progress(self, done: int, planned: int) -> None: ...

    def replay_latency(self, p99_s: float) -> None:
        """The P99 of E2E so far of the replay that runs, where the engine tells."""

    def replayed(self, rps: float, judgement: Judgement) -> None: ...

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None: ...

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None: ...

    def final_finished(self, label: str, capacity: Capacity) -> None: ...

    def finished(self, result: TuneResult) -> None: ...
