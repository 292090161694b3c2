"""All trials as flat rows (CSV) and as objects (JSON)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import orjson

from tuner.report.results import result_object
from tuner.report.words import flag_value
from tuner.study.kept import KeptStudy, KeptTrial

_FIELDS = (
    "metric",
    "p99_s",
    "limit_s",
    "slo_margin",
    "e2e_p99_s",
    "ttft_p99_s",
    "tpot_p99_s",
    "attainment",
    "lost_at_rps",
    "failure",
    "cause",
    "mend",
    "startup_s",
    "warm_up_s",
    "replay_s",
    "engine_s",
    "kv_tokens",
    "replays",
)


def trial_row(trial: KeptTrial) -> dict[str, Any]:
    """One trial's figures, without its flags. Trials count from 1, as on the screen."""
    return {
        "trial": trial.number + 1,
        "origin": trial.origin,
        "outcome": trial.outcome,
        "repeat_of": trial.repeat_of + 1 if trial.repeat_of is not None else None,
        "value": trial.value,
        "capacity_rps": trial.attrs.get("capacity_rps"),
        **{name: trial.attrs.get(name) for name in _FIELDS},
        "feasible": all(v <= 0 for v in trial.constraints.values()) if trial.constraints else None,
        "started": trial.started.isoformat() if trial.started else None,
        "ended": trial.ended.isoformat() if trial.ended else None,
    }


def trials_csv(study: KeptStudy) -> str:
    """A row a trial: figures, then `flag.NAME` what the launch set and `param.NAME` the point of the space.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    flags = sorted({name for trial in study.trials for name in trial.config})
    params = sorted({name for trial in study.trials for name in trial.params})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head: list[str] | None = None
    for trial in study.trials:
        row = trial_row(trial)
        if head is None:
            head = list(row)
            writer.writerow([*head, *(f"flag.{n}" for n in flags), *(f"param.{n}" for n in params)])
        cells = [_cell(v) for v in row.values()]
        cells += [_flag(trial.config, name) for name in flags] + [
            _flag(trial.params, name) for name in params
        ]
        writer.writerow(cells)
    return out.getvalue()


def study_json(study: KeptStudy) -> str:
    """The study as one object: job, result, every trial with its flags and replays, every final."""
    trials = [
        {
            **trial_row(trial),
            "flags": trial.config,
            "params": trial.params,
            "changed": trial.changed,
            "constraints": trial.constraints,
            "replays_by_load": trial.launch.replays,
        }
        for trial in study.trials
    ]
    finals = [{"flags": f.config, "went": f.went, "replays_by_load": f.replays} for f in study.finals]
    value = {
        "study": study.name,
        "state": study.state,
        "job": study.job,
        "launches": study.launches,
        "engine_seconds": study.engine_s,
        "result": result_object(study.result) if study.result else None,
        "trials": trials,
        "finals": finals,
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    return orjson.dumps(value, option=options, default=_plain).decode() + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _flag(flags: Mapping[str, Any], name: str) -> str:
    return _cell(yaml_like(flags[name])) if name in flags else ""


def yaml_like(value: Any) -> Any:
    """A flag's value: numbers as they are, switches as `true` and `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, int | float) else flag_value(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = " ".join(value.split())
        return f"'{text}" if text[:1] in "=+-@" and text else text
    return str(value)
