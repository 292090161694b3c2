"""A study as a page."""

from __future__ import annotations

from tuner import __version__
from tuner.report.content.comparison import comparison_section, curves_section, users_section
from tuner.report.content.evidence import finals_section, flags_section, sensitivity_section, ties_section
from tuner.report.content.predictions import simulator_section
from tuner.report.content.reproduce import reproduce_section
from tuner.report.content.summary import summary
from tuner.report.content.time import time_section
from tuner.report.content.trials import invalid_section, trials_section
from tuner.report.content.view import View
from tuner.report.headline import study_headline
from tuner.report.page.blocks import Page
from tuner.report.words import limits_text
from tuner.study.kept import KeptStudy

SECTIONS = (
    comparison_section,
    curves_section,
    users_section,
    flags_section,
    ties_section,
    sensitivity_section,
    finals_section,
    trials_section,
    invalid_section,
    time_section,
    simulator_section,
    reproduce_section,
)
"""The report in its order; a section without figures is left out."""


def study_page(study: KeptStudy) -> Page:
    """The report of a study: finished, interrupted, or still running."""
    view = View(study)
    job = study.job
    sections = (make(view) for make in SECTIONS)
    measured = "SIMULATED" if study.simulated else "measured"
    return Page(
        title=f"{study.name}: kimi-tune",
        kicker=f"{job.get('model', '?')} on {job.get('gpu', '?')}, {limits_text(job.get('slo') or {})}, "
        f"vLLM {job.get('vllm_version', '?')}, {measured}",
        headline=study_headline(study),
        summary=summary(view),
        sections=tuple(section for section in sections if section is not None),
        footer=f"Study {study.name}, {study.state}. Made by kimi-tune {__version__}.",
    )
