"""What the study's database holds, read back: records of trials, the incumbent, what was seen already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.engines.base import FailureKind, Outcome
from tuner.space.config import LaunchConfig
from tuner.study.attrs import attrs_of
from tuner.study.records import TrialRecord

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

BASELINE = "vllm-default"
SAMPLER = "sampler"


class History:
    """A view of the finished trials; made anew after every tell."""

    def __init__(self, study: Study) -> None:
        from optuna.trial import TrialState

        self.all = study.get_trials(deepcopy=False)
        self.complete = [t for t in self.all if t.state is TrialState.COMPLETE]
        self.waiting = any(t.state is TrialState.WAITING for t in self.all)
        self._failed = [t for t in self.all if t.state is TrialState.FAIL]
        own = [t for t in self.complete if "repeat_of" not in t.user_attrs]
        attrs = {t.number: attrs_of(t) for t in own}
        self.records = [record_of(t) for t in own]
        self._seen = {attrs[t.number].get("key"): t for t in own}
        self._seen |= {a["same_as"]: t for t in own if "same_as" in (a := attrs[t.number])}

    @property
    def told(self) -> int:
        """How many trials the sampler knows."""
        return len(self.complete)

    def seen(self, config: LaunchConfig) -> FrozenTrial | None:
        """The trial that tried this configuration."""
        return self._seen.get(config.key())

    def incumbent(self) -> TrialRecord | None:
        """The best trial that met the SLO; of equals the first."""
        passed = [r for r in self.records if r.outcome is Outcome.OK]
        return max(passed, key=lambda r: (r.value_rps, -r.number), default=None)

    def baseline(self) -> FrozenTrial | None:
        """Trial 0."""
        return next((t for t in self.complete if t.user_attrs.get("origin") == BASELINE), None)

    def launched(self) -> int:
        """Launches that count against the budget: those that told something about a configuration."""
        return sum(int(attrs_of(t).get("launched", 0)) for t in self.complete)

    def lowest_value(self) -> float:
        """The lowest value told so far; 0 where nothing was."""
        return min((float(t.value or 0.0) for t in self.complete), default=0.0)

    def worst_p99(self, otherwise: float) -> float:
        """The worst `p99` constraint told so far."""
        return max((t.constraints["p99"] for t in self.complete), default=otherwise)

    def engine_s(self) -> float:
        """Seconds of engine time of all trials, those handed back included."""
        return float(sum(attrs_of(t).get("engine_s", 0.0) for t in self.complete + self._failed))

    def startups_s(self) -> list[float]:
        """What the launches so far took."""
        return [a["startup_s"] for t in self.complete if "startup_s" in (a := attrs_of(t))]

    def replays_s(self) -> list[float]:
        """What a replay took in each trial that met the SLO: replays of others are often stopped early."""
        passed = [attrs_of(t) for t in self.complete if t.user_attrs.get("outcome") == Outcome.OK.value]
        return [a["replay_s"] / a["replays"] for a in passed if a.get("replay_s") and a.get("replays")]

    def launches(self) -> int:
        """Launches of all trials, those handed back included."""
        return int(sum(attrs_of(t).get("launches", 0) for t in self.complete + self._failed))

    def counts(self) -> dict[str, int]:
        """Trials by outcome."""
        counts = {outcome.value: 0 for outcome in Outcome}
        for record in self.records:
            counts[record.outcome.value] += 1
        counts[Outcome.MACHINE.value] += sum(
            1 for t in self._failed if t.user_attrs.get("outcome") == Outcome.MACHINE.value
        )
        return counts

    def seeds_used(self) -> set[int]:
        """Numbers of the seeds that have been asked."""
        return {t.user_attrs["seed"] for t in self.all if "seed" in t.user_attrs}


def record_of(trial: FrozenTrial) -> TrialRecord:
    """A finished trial as the observer and the report see it."""
    attrs = attrs_of(trial)
    return TrialRecord(
        number=trial.number,
        origin=attrs.get("origin", SAMPLER),
        config=LaunchConfig.of(attrs.get("config", {})),
        outcome=Outcome(attrs.get("outcome", Outcome.MACHINE.value)),
        value_rps=float(trial.value or 0.0) if trial.values else 0.0,
        p99_s=attrs.get("p99_s"),
        limit_s=attrs.get("limit_s"),
        lost_at_rps=attrs.get("lost_at_rps"),
        failure=FailureKind(attrs["failure"]) if attrs.get("failure") else None,
        cause=attrs.get("cause", ""),
        engine_s=float(attrs.get("engine_s", 0.0)),
        changed=attrs.get("changed", {}),
    )
