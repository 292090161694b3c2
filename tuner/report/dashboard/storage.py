"""A study's storage as optuna-dashboard wants to read it.

The dashboard reads constraints under an older name than Optuna writes them, and takes the best of all trials
whatever their constraints: both are put right here, on copies, and the database keeps one format. Notes,
artifacts and plots lie over the study's own attributes; what a user wrote there wins.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from tuner.report.content.pictures import pictures
from tuner.report.content.view import View
from tuner.report.dashboard.artifacts import ArtifactFiles, artifacts_of
from tuner.report.dashboard.notes import study_note, trial_note
from tuner.report.dashboard.plotly import Figure
from tuner.study.attrs import attrs_of
from tuner.study.kept import load_study, read_study
from tuner.study.storage import SQLITE_TIMEOUT_S, StudyPlace

CONSTRAINTS = "constraints"
NOTE, PLOT = "dashboard:note", "dashboard:plot_data"
OURS = "kimi-tune:note"
"""Digest of the study's note as it was last saved here: another text is the user's own."""
_FRESH_S = 2.0
_SHOWN = (str, int, float)
"""Attributes of these kinds are shown one by one; what is nested (the flags, say) is in the note."""


class DashboardStorage(RDBStorage):
    """Reads like the study's storage, translated; deletes nothing."""

    def __init__(self, place: StudyPlace, files: ArtifactFiles) -> None:
        url = place.url()
        options = {"connect_args": {"timeout": SQLITE_TIMEOUT_S}} if url.startswith("sqlite") else {}
        super().__init__(url, engine_kwargs=options, skip_table_creation=True)
        self._place, self._files = place, files
        self._over: dict[str, Any] = {}
        self._made_s = -_FRESH_S
        self._seen: object = None

    # trials

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials, their constraints under the name that the dashboard reads."""
        return [_translated(t) for t in super().get_all_trials(study_id, deepcopy=False, states=states)]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """One trial, translated."""
        return _translated(super().get_trial(trial_id))

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """The best among the feasible; where none is, the nearest, which `serve` then does not call best.

        Raises:
            ValueError: no trial is complete.
        """
        maximize = self.get_study_directions(study_id)[0] is StudyDirection.MAXIMIZE
        told = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.COMPLETE,))
        found = [t for t in told if feasible(t) and "repeat_of" not in t.user_attrs]
        if not found:
            return min(told, key=lambda t: (max(t.constraints.values(), default=0.0), t.number))
        sign = 1.0 if maximize else -1.0
        return max(found, key=lambda t: (sign * float(t.value or 0.0), -t.number))

    # the study

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """The study's attributes with notes, artifacts and plots over them."""
        own = super().get_study_system_attrs(study_id)
        return self._laid_over(study_id, own)

    def get_all_studies(self) -> list[FrozenStudy]:
        """The studies of the storage, likewise."""
        studies = super().get_all_studies()
        for study in studies:
            study.system_attrs = self._laid_over(study._study_id, study.system_attrs)
        return studies

    def delete_study(self, study_id: int) -> None:
        """Refused: `kimi-tune studies delete` does it with all that belongs to it."""
        raise PermissionError("use kimi-tune studies delete")

    def _laid_over(self, study_id: int, own: Mapping[str, Any]) -> dict[str, Any]:
        if self.get_study_name_from_id(study_id) != self._place.name:
            return dict(own)
        if time.monotonic() - self._made_s >= _FRESH_S:
            self._refresh(study_id)
        kept = {key: value for key, value in own.items() if not _replaced(key, own)}
        extra = {
            key: value for key, value in self._over.items() if _note_of(key) is None or not _edited(key, own)
        }
        return {**kept, **extra}

    def _refresh(self, study_id: int) -> None:
        trials = super().get_all_trials(study_id, deepcopy=False)
        seen = (
            len(trials),
            sum(t.state.is_finished() for t in trials),
            len(self.get_study_user_attrs(study_id)),
        )
        self._made_s = time.monotonic()
        if seen == self._seen:
            return
        self._seen = seen
        over, files = attributes(self._place)
        self._over, self._files.known = over, files.known


def _translated(trial: FrozenTrial) -> FrozenTrial:
    constraints = trial.constraints if trial.state is TrialState.COMPLETE else {}
    copied = copy.copy(trial)
    attrs = dict(trial._system_attrs)
    if constraints:
        attrs[CONSTRAINTS] = [constraints[name] for name in sorted(constraints)]
    copied._system_attrs = attrs
    named = attrs_of(trial).items()
    copied.user_attrs = {name: value for name, value in named if isinstance(value, _SHOWN) and value != ""}
    return copied


def feasible(trial: FrozenTrial) -> bool:
    """Whether every constraint holds."""
    return all(value <= 0 for value in trial.constraints.values())


def attributes(place: StudyPlace) -> tuple[dict[str, Any], ArtifactFiles]:
    """Notes, artifacts and plots as the dashboard's attributes of the study, and the artifacts' files."""
    kept = read_study(place)
    view, files = View(kept), ArtifactFiles()
    over: dict[str, Any] = {f"{NOTE}_ver": 1, f"{NOTE}_str:0": study_note(view)}
    for trial in kept.trials:
        over[f"dashboard:{trial.id}:note_ver"] = 1
        over[f"dashboard:{trial.id}:note_str:0"] = trial_note(view, trial)
        for artifact in artifacts_of(kept, trial):
            files.known[artifact.id] = artifact
            over[f"dashboard:artifacts:{trial.id}:{artifact.id}"] = json.dumps(artifact.meta())
    for figure in map(Figure, pictures(view)):
        over[f"{PLOT}:{figure.id}:0"] = figure.to_json()
    return over, files


def save(place: StudyPlace) -> None:
    """Save the study's note and plots in the study, for whoever opens it with the plain dashboard.

    A note that a user has edited is left alone.
    """
    from optuna_dashboard import save_note, save_plotly_graph_object

    kept = read_study(place)
    view, study = View(kept), load_study(place)
    for figure in map(Figure, pictures(view)):
        save_plotly_graph_object(study, figure, graph_object_id=figure.id)
    own = study._storage.get_study_system_attrs(study._study_id)
    text = study_note(view)
    if f"{NOTE}_ver" not in own or not _edited(f"{NOTE}_ver", own):
        save_note(study, text)
        study._storage.set_study_system_attr(study._study_id, OURS, _digest(text))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _note_of(key: str) -> str | None:
    """The prefix of the note that a key belongs to; None for another key."""
    for end in (":note_ver", ":note_str:"):
        if key.startswith("dashboard:") and end in key:
            return key[: key.index(end)]
    return None


def _edited(key: str, own: Mapping[str, Any]) -> bool:
    """Whether the note of a key is a user's own."""
    prefix = _note_of(key)
    if prefix is None or f"{prefix}:note_ver" not in own:
        return False
    if prefix != "dashboard":
        return True
    return _digest(_body(own, prefix)) != own.get(OURS)


def _body(own: Mapping[str, Any], prefix: str) -> str:
    parts: Sequence[str] = [k for k in own if k.startswith(f"{prefix}:note_str:")]
    return "".join(str(own[k]) for k in sorted(parts, key=lambda k: int(k.rpartition(":")[2])))


def _replaced(key: str, own: Mapping[str, Any]) -> bool:
    """Whether what lies over the study takes a stored attribute's place: its plots, and an unedited note."""
    if key.startswith(f"{PLOT}:kimi-tune-"):
        return True
    return _note_of(key) is not None and not _edited(key, own)
