"""What was predicted of each configuration before its launch, beside what was measured."""

from __future__ import annotations

from tuner.engines.base import Outcome
from tuner.profiles.evidence import PredictionRow
from tuner.study.attrs import attrs_of
from tuner.study.history import BASELINE, History
from tuner.study.patience import PREDICTED


def prediction_rows(history: History) -> tuple[PredictionRow, ...]:
    """One row for every launch that met the SLO somewhere and was predicted, in their order.

    A trial that lost to the incumbent has no measured capacity, and so no row.
    """
    rows = []
    for trial in history.complete:
        attrs = attrs_of(trial)
        said = attrs.get(PREDICTED)
        if said is None or attrs.get("outcome") != Outcome.OK.value or "repeat_of" in attrs:
            continue
        label = "default" if attrs.get("origin") == BASELINE else f"trial {trial.number + 1}"
        value = float(trial.value or 0.0)
        if value > 0.0 and said["rps"] > 0.0:
            rows.append(PredictionRow(label, said["rps"], value, int(said["launches_before"])))
    return tuple(rows)
