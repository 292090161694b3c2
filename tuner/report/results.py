"""A result as the object that `kimi-tune --json` prints."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from tuner.profiles import Measured, Profile, measured_to_json, profile_to_json
from tuner.study.records import Plan, TuneResult

OUTCOMES = ("ok", "slo", "crash", "refused", "machine")


def measured_object(measured: Measured) -> dict[str, Any]:
    """One configuration's figures; the command as one line for a shell."""
    return {**measured_to_json(measured), "command": shlex.join(measured.command)}


def result_object(result: TuneResult) -> dict[str, Any]:
    """The end of a study, with the keys of the design."""
    profile = result.profile
    return {
        "study": result.study,
        "engine": result.engine,
        "gpu": result.gpu,
        "model": result.model,
        "slo": dict(result.slo),
        "recommendation": result.recommendation,
        "winner": measured_object(result.winner) if result.winner else None,
        "baseline": measured_object(result.baseline),
        "gain": result.gain,
        "trials": {name: result.trials.get(name, 0) for name in OUTCOMES},
        "launches": result.launches,
        "engine_seconds": result.engine_seconds,
        "vllm_version": profile.vllm_version if profile else None,
        "window": list(profile.window) if profile else None,
        "start_rps": profile.start_rps if profile else None,
        "users_table": [asdict(row) for row in result.users_table],
        "closest": result.closest or None,
        **_evidence(profile),
    }


def _evidence(profile: Profile | None) -> dict[str, Any]:
    """What stands behind the recommendation; lists are empty where there is nothing to say."""
    if profile is None:
        return {}
    full = profile_to_json(profile)
    names = ("gain_interval", "ties", "flag_gains", "sensitivity", "brittle", "separate", "finals", "drift")
    return {name: full[name] for name in names}


def plan_object(plan: Plan) -> dict[str, Any]:
    """The plan, for `--dry-run --json`."""
    return {**asdict(plan), "coverage": {str(length): share for length, share in plan.coverage.items()}}
