"""Whether trials beside each other disturb each other: the default, alone before, once more among them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tuner.study.attrs import attrs_of
from tuner.study.baseline import Baseline
from tuner.study.crew import Task
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.storage import StudyPlace
from tuner.study.trial import Run

if TYPE_CHECKING:
    from optuna.study import Study

KEY = "neighbours"
LITTLE = 0.05
"""A slot that carries or answers this much worse beside others is said to be disturbed."""


def make_check(job: Job, place: StudyPlace, study: Study, baseline: Baseline) -> Task | None:
    """The default's launch beside others; None where there are none, or it is done, or it would say nothing.

    An engine that gives the same figures every time cannot be disturbed.
    """
    trial = History(study).baseline()
    if job.slots is None or job.parallel < 2 or job.engine.deterministic or trial is None:
        return None
    carried = attrs_of(trial).get("capacity_rps", 0.0)
    if KEY in study.user_attrs or not carried or job.spec.budget.trials < job.parallel + 1:
        return None
    return Task(None, baseline.config, place.folder / "neighbours", float(carried))


def compare(study: Study, job: Job, place: StudyPlace, run: Run) -> str:
    """Keep how the default did alone and beside others, and say it."""
    trial = History(study).baseline()
    assert trial is not None
    if run.capacity is None:
        cause = run.failure.cause if run.failure else "not measured"
        study.set_user_attr(KEY, {"failed": cause})
        return f"whether neighbours disturb each other is not known: {cause}"
    alone = float(attrs_of(trial)["capacity_rps"])
    found: dict[str, Any] = {"alone_rps": alone, "beside_rps": run.capacity.rps, "at_rps": alone}
    before = _at(place.trial_folder(0), alone)
    after = _at(place.folder / "neighbours", alone)
    for name, path in (("output_tps", ("output_tps",)), ("mean_s", ("e2e_s", "mean"))):
        found[name] = [_value(before, path), _value(after, path)]
    study.set_user_attr(KEY, found)
    return _said(found)


def _said(found: dict[str, Any]) -> str:
    alone, beside = found["alone_rps"], found["beside_rps"]
    worse = 1.0 - beside / alone
    text = f"vLLM's defaults carry {beside:.3g} requests/s beside a neighbour, {alone:.3g} alone"
    mean = found["mean_s"]
    if all(mean):
        slower = mean[1] / mean[0] - 1.0
        worse = max(worse, slower)
        text += f"; mean latency at {found['at_rps']:.3g} requests/s {slower:+.1%}"
    if worse > LITTLE:
        return f"{text}: neighbours disturb each other, figures of the search are low (the finals run alone)"
    return f"{text}: neighbours disturb each other little"


def _at(folder: Any, load: float) -> dict[str, Any]:
    """The replay of a launch that was nearest to a load and valid."""
    try:
        replays = json.loads((folder / "replays.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    valid = [r for r in replays if r.get("verdict") != "INVALID" and abs(r["load"] / load - 1.0) < 0.01]
    return valid[-1] if valid else {}


def _value(summary: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = summary
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None
