"""A kept study with what the report asks of it: whose launches are whose, curves, P99s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from tuner.profiles.evidence import FlagGain
from tuner.profiles.profile import Measured, Profile
from tuner.spec import LoadMode
from tuner.study.kept import KeptLaunch, KeptStudy, KeptTrial

Replays = Iterable[Mapping[str, Any]]


class View:
    """One study to report on."""

    def __init__(self, study: KeptStudy) -> None:
        self.study = study
        self.result = study.result
        self.profile: Profile | None = study.result.profile if study.result else None

    @property
    def by_users(self) -> bool:
        """Whether loads are users in a closed loop."""
        return self.study.job.get("load") == LoadMode.USERS.value

    @property
    def load_name(self) -> str:
        """The load's name and unit."""
        return "users" if self.by_users else "load offered, requests/s"

    @property
    def tuned(self) -> Measured | None:
        """The recommended configuration where it is not the default."""
        result = self.result
        return result.winner if result is not None and result.recommendation == "tuned" else None

    @property
    def default(self) -> Measured | None:
        """The default's figures in the finals."""
        return self.result.baseline if self.result is not None else None

    @cached_property
    def default_replays(self) -> list[Mapping[str, Any]]:
        """What was replayed on the default: in the finals where they were held, else in trial 0."""
        found = self._of_finals(self.default)
        trial = self.study.baseline
        return found or (list(trial.launch.replays) if trial else [])

    @cached_property
    def tuned_replays(self) -> list[Mapping[str, Any]]:
        """The same for the recommended configuration, else for the best trial."""
        if self.tuned is not None:
            return self._of_finals(self.tuned)
        best = self.study.best
        if self.result is not None or best is None or best is self.study.baseline:
            return []
        return list(best.launch.replays)

    def _of_finals(self, measured: Measured | None) -> list[Mapping[str, Any]]:
        if measured is None:
            return []
        flags = _plain(measured.flags)
        launches = [f for f in self.study.finals if _plain(f.config) == flags]
        return [replay for launch in launches for replay in launch.replays]

    @cached_property
    def flag_gains(self) -> tuple[FlagGain, ...]:
        """What each flag gave: as the profile says, else from finals that put one flag back."""
        if self.profile is not None and self.profile.flag_gains:
            return self.profile.flag_gains
        if self.tuned is None:
            return ()
        whole = self.tuned.users if self.by_users else self.tuned.throughput_rps
        flags, source = _plain(self.tuned.flags), "simulated" if self.study.simulated else "engine"
        found: dict[str, FlagGain] = {}
        for launch in self.study.finals:
            config, carried = _plain(launch.config), launch.went.get("capacity")
            gone = [name for name in flags if name not in config]
            kept = {name: value for name, value in flags.items() if name not in gone}
            if len(gone) == 1 and kept == config and isinstance(carried, int | float) and whole > 0:
                name = gone[0]
                found[name] = FlagGain(name, self.tuned.flags[name], 1.0 - carried / whole, source)
        return tuple(found.values())

    def others(self, count: int) -> list[KeptTrial]:
        """The best trials beside the default and the best."""
        passed = [t for t in self.study.own if t.outcome == "ok" and t is not self.study.baseline]
        passed.sort(key=lambda t: (-(t.value or 0.0), t.number))
        return [t for t in passed if t is not self.study.best][:count]

    def replay_at(self, replays: Replays, load: float) -> Mapping[str, Any]:
        """The replay at a load; {} where there is none."""
        found = [r for r in replays if abs(float(r.get("load", 0.0)) - load) <= 1e-6 * max(load, 1e-9)]
        return found[-1] if found else {}

    def launches(self) -> Iterator[tuple[str, KeptLaunch]]:
        """Every launch with its name."""
        for trial in self.study.own:
            yield f"trial {trial.number + 1}", trial.launch
        for index, launch in enumerate(self.study.finals, 1):
            yield f"final {index}", launch

    def invalid(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The replays that prove nothing, with the launch that they belong to."""
        return [
            (name, replay)
            for name, launch in self.launches()
            for replay in launch.replays
            if replay.get("verdict") == "INVALID"
        ]


def p99_of(replay: Mapping[str, Any], metric: str) -> float | None:
    """A replay's P99 of `e2e`, `ttft` or `tpot` in seconds; None where it has none (failed, or stopped
    early).
    """
    figures = replay.get(f"{metric}_s") or {}
    value = figures.get("p99")
    return float(value) if isinstance(value, int | float) else None


def _plain(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in flags.items()}
