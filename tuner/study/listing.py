"""The studies of a folder, for whoever wants to see what was tuned here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BadRequest
from tuner.spec import LoadMode
from tuner.study.history import History
from tuner.study.owner import alive
from tuner.study.results import result_from_json
from tuner.study.storage import UNITS, StudyPlace, open_storage

if TYPE_CHECKING:
    from optuna.study import Study


@dataclass(frozen=True, slots=True)
class StudyEntry:
    """One study. `state` is `finished`, `running`, `unfinished` or `unreadable`; `best` is the highest load
    that a trial carried within the SLO (0: none), in `unit`; `throughput_rps` and `gain` are the finals'.
    """

    name: str
    engine: str
    state: str
    trials: int
    recommendation: str = ""
    throughput_rps: float = 0.0
    gain: float | None = None
    gpu: str = ""
    model: str = ""
    slo: Mapping[str, float] = field(default_factory=dict)
    best: float = 0.0
    unit: str = "requests/s"

    def to_json(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)


def list_studies(root: Path) -> list[StudyEntry]:
    """The studies below a folder, by name."""
    return [_entry(root, database.parent.name) for database in sorted(root.glob("*/study.db"))]


def profile_path(study: str, root: Path) -> Path:
    """The profile of a study by its name or folder, or a profile file itself.

    Raises:
        BadRequest: there is none.
    """
    named = Path(study)
    for path in (named, named / "profile.yaml", root / study / "profile.yaml"):
        if path.is_file():
            return path
    if (root / study).is_dir():
        raise BadRequest(f"study {study}: it has no profile yet", "let it end: run the same command again")
    there = [entry.name for entry in sorted(root.glob("*")) if (entry / "study.db").exists()]
    known = f"known here: {', '.join(there[:8])}" if there else f"{root} holds none"
    raise BadRequest(f"study {study}: not found", known)


def _entry(root: Path, name: str) -> StudyEntry:
    import optuna

    try:
        storage = open_storage(StudyPlace(name, root))
        study = optuna.load_study(study_name=name, storage=storage)
    except (BadRequest, KeyError):
        return StudyEntry(name, "?", "unreadable", 0)
    return _described(study, name)


def _described(study: Study, name: str) -> StudyEntry:
    attrs = study.user_attrs
    job, history, owner = attrs.get("job", {}), History(study), attrs.get("owner")
    best = history.incumbent()
    entry = StudyEntry(
        name=name,
        engine=job.get("engine", "?"),
        state="running" if owner and alive(owner, shared=False) else "unfinished",
        trials=len(history.records),
        gpu=job.get("gpu", ""),
        model=job.get("model", ""),
        slo=job.get("slo", {}),
        best=best.value_rps if best else 0.0,
        unit=UNITS[LoadMode(job.get("load", LoadMode.RATE.value))],
    )
    try:
        result = result_from_json(attrs["result"]["result"])
    except (BadRequest, KeyError, TypeError, ValueError):
        return entry
    return replace(
        entry,
        state="finished" if entry.state == "unfinished" else entry.state,
        recommendation=result.recommendation,
        throughput_rps=result.winner.throughput_rps if result.winner else 0.0,
        gain=result.gain,
    )
