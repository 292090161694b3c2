"""What passes between a tuner and a worker on another host through the study's storage, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.engines.base import LaunchFailure, Outcome, ServerFacts
from tuner.space.config import LaunchConfig
from tuner.spec import Slo
from tuner.study.history import History
from tuner.study.storage import plain
from tuner.study.tell import Told, told_run
from tuner.study.trial import Run, Spending

WORKER, TASK, DONE = "worker:", "task:", "done:"
"""Beginnings of study attributes; behind them the worker's id. Each attribute has one writer."""


def finding_to_json(
    run: Run, spent: Spending, slo: Slo, lesson: Mapping[str, Any], untrue: int
) -> dict[str, Any]:
    """What a worker found."""
    told = None
    if run.failure is None:
        made = told_run(run, slo, _NO_HISTORY)
        attrs = {**made.attrs, **lesson}
        told = {"outcome": made.outcome.value, "value": made.value, "p99": made.p99, "attrs": plain(attrs)}
    return {
        "told": told,
        # a log lies on the worker's host
        "failure": {**run.failure.to_json(), "log": None} if run.failure else None,
        "facts": plain(run.facts.to_json()) if run.facts else None,
        "engine_s": run.engine_s,
        "spent": [spent.launches, spent.engine_s],
        "untrue": untrue,
    }


def finding_from_json(config: LaunchConfig, values: Mapping[str, Any]) -> tuple[Run, Told | None, Spending]:
    """The run, what it is told as where it did not fail, and what it cost."""
    failure = LaunchFailure.from_json(values["failure"]) if values["failure"] else None
    facts = ServerFacts.from_json(values["facts"]) if values["facts"] else None
    told = None
    if (said := values["told"]) is not None:
        told = Told(Outcome(said["outcome"]), float(said["value"]), -1.0, float(said["p99"]), said["attrs"])
    run = Run(config, facts, None, failure, float(values["engine_s"]))
    return run, told, Spending(int(values["spent"][0]), float(values["spent"][1]))


class _Nothing(History):
    """What a run that did not fail is told as depends on no other trial."""

    def __init__(self) -> None:
        self.all = self.complete = []
        self.records = []


_NO_HISTORY = _Nothing()
