"""What a study ends with, in one sentence."""

from __future__ import annotations

from tuner.profiles.profile import Measured
from tuner.report.words import gain, rate
from tuner.spec import LoadMode
from tuner.study.kept import RUNNING, KeptStudy
from tuner.study.records import TuneResult


def result_headline(result: TuneResult) -> str:
    """The recommendation."""
    if result.recommendation == "tuned" and result.winner is not None:
        over = f"{gain(result.gain)} over vLLM's defaults"
        if result.gain is None:
            over = "where vLLM's defaults meet the SLO at no load"
        return f"Recommended: {carried(result, result.winner)} within the SLO, {over}"
    if result.recommendation == "default":
        return f"Keep the defaults: nothing tried carries more than {carried(result, result.baseline)}"
    return "No configuration tried meets the SLO"


def study_headline(study: KeptStudy) -> str:
    """The recommendation, or how far the study has come."""
    if study.result is not None:
        return result_headline(study.result)
    state = "Still running" if study.state == RUNNING else "Not finished"
    best = study.best
    if best is None:
        return f"{state}: no configuration has met the SLO so far"
    return (
        f"{state}: the best so far carries {rate(best.value or 0.0)} {study.unit} (trial {best.number + 1})"
    )


def carried(result: TuneResult, measured: Measured) -> str:
    """What a configuration carries, in what the study counts."""
    if result.load is LoadMode.USERS:
        return f"{measured.users:,} users"
    return f"{rate(measured.throughput_rps)} requests/s"
