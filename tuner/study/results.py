"""A result as plain JSON values and back, for the study's database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.profiles import measured_from_json, measured_to_json, profile_from_json, profile_to_json
from tuner.profiles.profile import UsersRow
from tuner.spec import LoadMode
from tuner.study.records import TuneResult


def result_to_json(result: TuneResult) -> dict[str, Any]:
    """Every field, nested."""
    return {
        "study": result.study,
        "engine": result.engine,
        "gpu": result.gpu,
        "model": result.model,
        "slo": dict(result.slo),
        "recommendation": result.recommendation,
        "winner": measured_to_json(result.winner) if result.winner else None,
        "baseline": measured_to_json(result.baseline),
        "gain": result.gain,
        "trials": dict(result.trials),
        "launches": result.launches,
        "engine_seconds": result.engine_seconds,
        "profile": profile_to_json(result.profile) if result.profile else None,
        "users_table": [
            [r.users, r.default_mean_s, r.default_p99_s, r.tuned_mean_s, r.tuned_p99_s]
            for r in result.users_table
        ],
        "closest": result.closest,
        "load": result.load.value,
    }


def result_from_json(values: Mapping[str, Any]) -> TuneResult:
    """The result that `result_to_json` wrote."""
    winner, profile = values["winner"], values["profile"]
    return TuneResult(
        study=values["study"],
        engine=values["engine"],
        gpu=values["gpu"],
        model=values["model"],
        slo=values["slo"],
        recommendation=values["recommendation"],
        winner=measured_from_json(winner) if winner else None,
        baseline=measured_from_json(values["baseline"]),
        gain=values["gain"],
        trials=values["trials"],
        launches=values["launches"],
        engine_seconds=values["engine_seconds"],
        profile=profile_from_json(profile) if profile else None,
        users_table=tuple(UsersRow(*row) for row in values["users_table"]),
        closest=values["closest"],
        load=LoadMode(values["load"]),
    )
