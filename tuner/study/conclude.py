"""From the finals to the result and the profile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tuner.engines.base import Outcome
from tuner.profiles import traffic_of
from tuner.profiles.evidence import Tie
from tuner.profiles.profile import Measured, Profile
from tuner.space import quality_flags
from tuner.space.config import LaunchConfig
from tuner.study.accounts import beyond_trials, spent_s
from tuner.study.attrs import attrs_of
from tuner.study.baseline import Baseline
from tuner.study.cards import by_cards
from tuner.study.finalist import Finalist
from tuner.study.finals import Finals
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.predictions import prediction_rows
from tuner.study.records import TuneResult
from tuner.study.sensitivity import flag_gains, sensitivity
from tuner.study.storage import StudyPlace
from tuner.study.users import joined
from tuner.study.windows import Windows

if TYPE_CHECKING:
    from optuna.study import Study


def conclude(
    job: Job,
    place: StudyPlace,
    study: Study,
    baseline: Baseline,
    finals: Finals,
    windows: Windows,
    *,
    resumed: bool,
) -> TuneResult:
    """The result of a study, and its profile where something can be deployed."""
    history = History(study)
    default = measured(finals.default, baseline, baseline.note)
    winner = finals.winner
    tuned = winner is not None and winner is not finals.default
    best = default if winner is finals.default else None
    if winner is not None and tuned:
        best = measured(winner, baseline, "")
    recommendation = "tuned" if tuned else "default" if winner is not None else "none"
    gain = finals.gain if tuned else 1.0 if recommendation == "default" else None
    table = joined(finals.default.users, winner.users) if winner is not None else ()
    profile = None
    if best is not None and winner is not None:
        held = sensitivity(job, windows.search, finals.default, winner)
        profile = Profile(
            study=place.name,
            gpu=job.gpu.label,
            model=job.shape.path or job.spec.model,
            vllm_version=job.engine.vllm_version,
            slo=job.spec.slo.to_json(),
            trace=_trace(job),
            window=windows.finals_span,
            start_rps=winner.start,
            requests=job.spec.requests,
            seed=job.spec.seed,
            recommendation=recommendation,
            winner=best,
            baseline=default,
            gain=gain,
            provenance="simulated" if job.engine.name == "sim" else "measured",
            driver=job.driver,
            users_table=table,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            gain_interval=finals.gain_interval,
            ties=tuple(_tie(finalist) for finalist in finals.tied),
            flag_gains=flag_gains(job, winner, finals.flag_gains) if tuned else (),
            sensitivity=held.shifts,
            brittle=held.brittle,
            separate=held.separate,
            finals=finals.rows,
            drift=finals.drift,
            machine=job.machine,
            traffic=traffic_of(job.trace, best),
            cost=job.cost,
            by_cards=by_cards(history),
            predictions=prediction_rows(history),
        )
    return TuneResult(
        study=place.name,
        engine=job.engine.name,
        gpu=job.gpu.label,
        model=job.spec.model,
        slo=job.spec.slo.to_json(),
        recommendation=recommendation,
        winner=best,
        baseline=default,
        gain=gain,
        trials=history.counts(),
        launches=history.launches() + beyond_trials(study).launches,
        engine_seconds=spent_s(study),
        profile=profile,
        users_table=table,
        closest=_closest(job, history) if winner is None else "",
        load=job.spec.load,
        resumed=resumed,
    )


def measured(finalist: Finalist, baseline: Baseline, note: str) -> Measured:
    """A finalist's figures; throughput 0 where it met the SLO nowhere or did not start."""
    facts, shown = finalist.facts, finalist.figures
    effective = {**baseline.effective, **(facts.effective if facts else {}), **finalist.config}
    if finalist.failure is not None:
        how = "did not start on every launch" if shown is not None else "does not start"
        note = note or f"{how}: {finalist.failure.cause}"
    if changes := quality_flags(finalist.config):
        said = f"can change the answers' quality: {', '.join(changes)}"
        note = f"{note}; {said}" if note else said
    return Measured(
        flags=finalist.config,
        command=facts.command if facts else (),
        throughput_rps=shown.throughput_rps if shown else 0.0,
        output_tps=shown.output_tps if shown else 0.0,
        p99_s=shown.p99_s if shown else None,
        p99_interval_s=shown.p99_interval_s if shown else (None, None),
        mean_s=shown.mean_s if shown else None,
        users=finalist.users.users,
        kv_tokens=facts.kv_tokens if facts else 0,
        startup_s=facts.startup_s if facts else 0.0,
        effective=effective,
        note=note,
    )


def _tie(finalist: Finalist) -> Tie:
    carried = finalist.figures.throughput_rps if finalist.figures else 0.0
    return Tie(finalist.config, carried, tuple(sorted(finalist.changed)))


def _trace(job: Job) -> dict[str, object]:
    source = job.trace.source
    return {
        "path": str(job.spec.trace) if job.spec.trace else "shipped",
        "digest": job.trace.digest(),
        "format": source.format,
        "requests": len(job.trace),
        "duration_s": round(job.trace.duration_s, 3),
        "prefix_reuse": source.prefix_reuse,
    }


def _closest(job: Job, history: History) -> str:
    """Which configuration came nearest to the SLO, and what would have been needed."""
    served = [t for t in history.complete if t.user_attrs.get("outcome") == Outcome.SLO.value]
    if not served:
        causes = [r.cause for r in history.records if r.cause]
        return f"no configuration started: {causes[-1]}" if causes else "no configuration was tried"
    nearest = min(served, key=lambda t: (t.constraints["p99"], t.number))
    attrs = attrs_of(nearest)
    flags = _said(LaunchConfig.of(attrs.get("config", {})))
    if attrs.get("p99_s") is None:
        missed = f"{1.0 - attrs.get('attainment', 0.0):.0%} of its requests failed or were too late"
        return f"closest: {flags}; even at {attrs['p99_at_rps']:.3g} requests/s {missed}"
    return (
        f"closest: {flags}; even at {attrs['p99_at_rps']:.3g} requests/s its P99 ({attrs['metric']}) is "
        f"{attrs['p99_s']:.3g} s against {attrs['limit_s']:g} s"
    )


def _said(config: LaunchConfig) -> str:
    return ", ".join(f"{flag} {value}" for flag, value in config.items()) or "vLLM's defaults"
