"""The study of simulated trials: what the guide thought of, beside the user's study and never in it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.space.config import LaunchConfig
from tuner.study.points import Distributions
from tuner.study.storage import StudyPlace, open_storage, plain

if TYPE_CHECKING:
    from optuna.study import Study

SUFFIX = "-simulated"
FILE = "simulated.db"


def simulated_place(place: StudyPlace) -> StudyPlace:
    """A database of its own in the study's folder, wherever the study itself is stored."""
    from sqlalchemy import URL

    path = (place.folder / FILE).absolute()
    url = URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
    return StudyPlace(place.name + SUFFIX, place.folder, url)


class Simulated:
    """Writes to the Optuna study `NAME-simulated` in `STUDY/simulated.db`, made when there is something."""

    def __init__(self, place: StudyPlace) -> None:
        self._place = place
        self._study: Study | None = None

    def keep(
        self,
        distributions: Distributions,
        found: Sequence[tuple[dict[str, Any], LaunchConfig, float, float]],
        launches: int,
    ) -> None:
        """Add trials: (point, configuration, predicted load, its spread), after so many launches."""
        import optuna

        if self._study is None:
            self._study = self._open()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.add_trials(
                [
                    optuna.trial.create_trial(
                        params=point,
                        distributions=dict(distributions),
                        value=rps,
                        user_attrs={
                            "config": plain(dict(config)),
                            "spread": spread,
                            "launches_before": launches,
                            "provenance": "simulated",
                        },
                    )
                    for point, config, rps, spread in found
                ]
            )

    def thought_of(self, launches: int) -> list[dict[str, Any]]:
        """The points that were kept before so many launches, by the last search for one."""
        if self._study is None:
            if not (self._place.folder / FILE).exists():
                return []
            self._study = self._open()
        kept = [
            t for t in self._study.get_trials(deepcopy=False) if t.user_attrs["launches_before"] < launches
        ]
        latest = max((t.user_attrs["launches_before"] for t in kept), default=0)
        points = [dict(t.params) for t in kept if t.user_attrs["launches_before"] == latest]
        return [point for i, point in enumerate(points) if point not in points[:i]]

    def _open(self) -> Study:
        import optuna

        place = simulated_place(self._place)
        self._place.folder.mkdir(parents=True, exist_ok=True)
        return optuna.create_study(
            study_name=place.name,
            storage=open_storage(StudyPlace(place.name, self._place.root, place.storage), quick=True),
            direction="maximize",
            load_if_exists=True,
        )
