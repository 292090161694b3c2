"""Everything that a study keeps, read back for whoever reports on it: finished, interrupted or still running.

Nothing is written. What is missing (a folder that lies on another host, a file of an older version) is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from tuner.errors import BadRequest
from tuner.profiles import load_profile
from tuner.spec import LoadMode
from tuner.study.accounts import beyond_trials
from tuner.study.attrs import attrs_of
from tuner.study.history import BASELINE, SAMPLER
from tuner.study.owner import alive
from tuner.study.records import TuneResult
from tuner.study.results import result_from_json
from tuner.study.resume import profile_file
from tuner.study.storage import UNITS, StudyPlace, exists, open_storage

if TYPE_CHECKING:
    from datetime import datetime

    from optuna.study import Study
    from optuna.trial import FrozenTrial

FINISHED, RUNNING, UNFINISHED = "finished", "running", "unfinished"
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class KeptLaunch:
    """One launch: its folder, its flags, its replays in order (`replays.json`) and how it went
    (`launch.json`).
    """

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    replays: tuple[Mapping[str, Any], ...] = ()
    went: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptTrial:
    """One trial. `outcome` is one of `Outcome`, or `interrupted`, `running`, `waiting`; `attrs` are all of
    its attributes, `repeat_of` the trial whose record it was told from.
    """

    number: int
    id: int
    outcome: str
    value: float | None
    params: Mapping[str, Any]
    constraints: Mapping[str, float]
    attrs: Mapping[str, Any]
    launch: KeptLaunch
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def origin(self) -> str:
        """Who proposed it."""
        return str(self.attrs.get("origin", SAMPLER))

    @property
    def config(self) -> Mapping[str, Any]:
        """The flags that its launch set."""
        flags: Mapping[str, Any] = self.attrs.get("config", {})
        return flags

    @property
    def changed(self) -> Mapping[str, Any]:
        """The parameters that differ from the values in force by default."""
        flags: Mapping[str, Any] = self.attrs.get("changed", {})
        return flags

    @property
    def repeat_of(self) -> int | None:
        """The trial that tried the same configuration before."""
        return self.attrs.get("repeat_of")

    @property
    def cause(self) -> str:
        """Why it failed; empty where it did not."""
        return str(self.attrs.get("cause") or "")


@dataclass(frozen=True, slots=True)
class KeptStudy:
    """A study as it stands. `engine_s` and `launches` count trials, finals and interrupted launches."""

    place: StudyPlace
    state: str
    job: Mapping[str, Any]
    trials: tuple[KeptTrial, ...]
    finals: tuple[KeptLaunch, ...]
    result: TuneResult | None
    launches: int
    engine_s: float
    budget: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The study's name."""
        return self.place.name

    @property
    def simulated(self) -> bool:
        """Whether every figure is a prediction."""
        return bool(self.job.get("engine", "sim") == "sim")

    @property
    def limits(self) -> dict[str, float]:
        """The SLO's limits in seconds by metric: `e2e`, `ttft`, `tpot`."""
        return {name.removesuffix("_p99_s"): limit for name, limit in self.job.get("slo", {}).items()}

    @property
    def unit(self) -> str:
        """What a trial's value counts."""
        return UNITS[LoadMode(self.job.get("load", LoadMode.RATE.value))]

    @property
    def own(self) -> tuple[KeptTrial, ...]:
        """The trials without those that only repeat another's record."""
        return tuple(t for t in self.trials if t.repeat_of is None)

    @property
    def baseline(self) -> KeptTrial | None:
        """Trial 0: vLLM's own defaults."""
        return next((t for t in self.trials if t.origin == BASELINE), None)

    @property
    def best(self) -> KeptTrial | None:
        """The trial that carries the most within the SLO; of equals the first."""
        passed = [t for t in self.own if t.outcome == "ok" and t.value is not None]
        return max(passed, key=lambda t: (t.value or 0.0, -t.number), default=None)


def find_study(name: str | None, root: Path, storage: str | None = None) -> StudyPlace:
    """The place of a study by name or folder; without a name the one that changed last.

    Raises:
        BadRequest: there is none.
    """
    there = sorted((p.parent for p in root.glob("*/study.db")), key=_changed, reverse=True)
    if name is None:
        if storage is not None:
            raise BadRequest("--storage: which study?", "name it: kimi-tune report NAME --storage URL")
        if not there:
            raise BadRequest(f"{root}: holds no studies", "tune first, or name the folder with --studies")
        return StudyPlace(there[0].name, root)
    if storage is not None:
        return StudyPlace(name, root, storage)
    for folder in (root / name, Path(name)):
        if (folder / "study.db").is_file():
            folder = folder.resolve() if folder.name in ("", ".", "..") else folder
            return StudyPlace(folder.name, folder.parent)
    known = ", ".join(sorted(folder.name for folder in there)[:8])
    raise BadRequest(f"study {name}: not found", f"known here: {known}" if known else f"{root} holds none")


def _changed(folder: Path) -> float:
    return (folder / "study.db").stat().st_mtime


def load_study(place: StudyPlace, *, storage: Any = None) -> Study:
    """The Optuna study of a place.

    Raises:
        BadRequest: it is not there, or cannot be read.
    """
    import optuna

    if storage is None and place.storage is None and not exists(place):
        raise BadRequest(f"study {place.name}: not found", f"see kimi-tune studies --studies {place.root}")
    try:
        return optuna.load_study(study_name=place.name, storage=storage or open_storage(place))
    except KeyError as error:
        raise BadRequest(f"study {place.name}: its storage does not know it", "check the name") from error


def read_study(place: StudyPlace, *, study: Study | None = None) -> KeptStudy:
    """Read a study back.

    Raises:
        BadRequest: it is not there, or cannot be read.
    """
    study = study or load_study(place)
    attrs = study.user_attrs
    trials = tuple(_trial(t, place) for t in study.get_trials(deepcopy=False))
    kept = attrs.get("result", {})
    result = _result(kept.get("result"), place) if kept else None
    owner = attrs.get("owner")
    running = owner is not None and alive(owner, shared=place.shared)
    beyond = beyond_trials(study)
    return KeptStudy(
        place=place,
        state=RUNNING if running else FINISHED if result is not None else UNFINISHED,
        job=attrs.get("job", {}),
        trials=trials,
        finals=tuple(_launch(folder) for folder in _numbered(place.folder / "finals")),
        result=result,
        launches=beyond.launches + sum(int(t.attrs.get("launches", 0)) for t in trials),
        engine_s=beyond.engine_s + sum(float(t.attrs.get("engine_s", 0.0)) for t in trials),
        budget=kept.get("budget", {}),
    )


def _result(values: Any, place: StudyPlace) -> TuneResult | None:
    """The stored result; None where another version wrote it in a way that this one cannot read.

    The profile is the file's where there is one: a price that was asked for later is in it.
    """
    try:
        result = result_from_json(values)
    except (BadRequest, KeyError, TypeError, ValueError):
        return None
    try:
        profile = load_profile(profile_file(place))
    except (BadRequest, OSError):
        return result
    return replace(result, profile=profile) if result.profile is not None else result


def _trial(trial: FrozenTrial, place: StudyPlace) -> KeptTrial:
    from optuna.trial import TrialState

    attrs = attrs_of(trial)
    open_states = {TrialState.RUNNING: RUNNING, TrialState.WAITING: "waiting"}
    outcome = open_states.get(trial.state) or str(attrs.get("outcome", INTERRUPTED))
    repeats = attrs.get("repeat_of") is not None
    return KeptTrial(
        number=trial.number,
        id=trial._trial_id,
        outcome=outcome,
        value=trial.value if trial.state is TrialState.COMPLETE and trial.values else None,
        params=dict(trial.params),
        constraints=dict(trial.constraints) if trial.state is TrialState.COMPLETE else {},
        attrs=attrs,
        launch=KeptLaunch(place.trial_folder(trial.number))
        if repeats
        else _launch(place.trial_folder(trial.number)),
        started=trial.datetime_start,
        ended=trial.datetime_complete,
    )


def _launch(folder: Path) -> KeptLaunch:
    if not folder.is_dir():
        return KeptLaunch(folder)
    replays, went = _json(folder / "replays.json"), _json(folder / "launch.json")
    return KeptLaunch(
        folder=folder,
        config=_yaml(folder / "config.yaml"),
        replays=tuple(r for r in replays if isinstance(r, dict)) if isinstance(replays, list) else (),
        went=went if isinstance(went, dict) else {},
    )


def _numbered(folder: Path) -> list[Path]:
    return sorted((p for p in folder.glob("*") if p.name.isdigit()), key=lambda p: int(p.name))


def _json(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None


def _yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}
