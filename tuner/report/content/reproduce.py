"""The exact commands that repeat the study, check its result, and deploy it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from tuner.profiles.profile import Measured
from tuner.report.content.view import View
from tuner.report.page.blocks import Block, Code, Column, Section, Table
from tuner.report.words import flag_value, limits_text

_SLO_OPTIONS = {"e2e_p99_s": "--slo-p99", "ttft_p99_s": "--slo-ttft-p99", "tpot_p99_s": "--slo-tpot-p99"}


def reproduce_section(view: View) -> Section:
    """Commands and what they depend on."""
    return Section("reproduce", "Reproduce", tuple(_blocks(view)))


def _blocks(view: View) -> Iterator[Block]:
    study = view.study
    again = "Go on where it stopped" if view.result is None else "Show this result again, or with a larger "
    again += "" if view.result is None else "--trials go on"
    yield Code(shlex.join([*tune_words(view), "--studies", str(study.place.root)]), again)
    measured = view.result.winner if view.result else None
    if measured is not None and view.profile is not None:
        caption = "Measure the recommendation again, as the finals did"
        yield Code(shlex.join(check_words(view, measured)), caption)
        yield Code(
            f"kimi-tune export {shlex.quote(study.name)} --studies {shlex.quote(str(study.place.root))} "
            "--format vllm",
            "Export it",
        )
    rows = [(name, str(value)) for name, value in facts(view) if value not in (None, "", "None")]
    yield Table("What the figures hold for", (Column("", False), Column("", False)), tuple(rows))


def tune_words(view: View) -> list[str]:
    """The tune job as a command line."""
    job = view.study.job
    words = ["kimi-tune", "--gpu", str(job.get("gpu", "auto")), *_slo_words(job)]
    words += ["--model", str(job.get("model", ""))]
    words += _option("--trace", job.get("trace")) + _option("--engine", job.get("engine"))
    words += _option("--space", job.get("space"))
    for flag, value in (job.get("fixed") or {}).items():
        words += ["--set", f"{flag}={yaml_text(value)}"]
    if job.get("load", "rate") != "rate":
        words += ["--load", str(job["load"])]
    words += _option("--requests", job.get("requests"), unless=1000)
    words += _option("--coverage", job.get("coverage")) + _option("--seed", job.get("seed"), unless=0)
    if view.study.simulated:
        words += _option("--vllm-version", job.get("vllm_version"))
    budget = view.study.budget
    words += _option("--trials", budget.get("trials"), unless=16)
    if budget.get("engine_s"):
        words += ["--budget", f"{budget['engine_s']:g}s"]
    return [*words, "--study", view.study.name, *_option("--storage", view.study.place.storage)]


def check_words(view: View, measured: Measured) -> list[str]:
    """The measurement of a configuration that the finals made, as a command line."""
    job, profile = view.study.job, view.profile
    assert profile is not None
    words = ["kimi-tune", "simulate" if view.study.simulated else "replay"]
    if view.study.simulated:
        words += ["--gpu", str(job.get("gpu")), "--model", str(job.get("model"))]
        words += _option("--vllm-version", job.get("vllm_version"))
        for flag, value in measured.flags.items():
            words += ["--set", f"{flag}={yaml_text(value)}"]
    else:
        words += ["--url", "http://127.0.0.1:8000"]
    words += [*_slo_words(job), *_option("--trace", job.get("trace"))]
    words += _option("--requests", job.get("requests"), unless=1000) + _option(
        "--seed", job.get("seed"), unless=0
    )
    if view.by_users:
        words += ["--load", "users"]
    return [*words, "--find-max", "--window", ":".join(f"{edge:g}" for edge in profile.window)]


def _slo_words(job: Any) -> list[str]:
    words = []
    for name, limit in (job.get("slo") or {}).items():
        if name in _SLO_OPTIONS:
            words += [_SLO_OPTIONS[name], f"{limit:g}s" if limit >= 1 else f"{limit * 1000:g}ms"]
    return words


def _option(name: str, value: Any, *, unless: Any = None) -> list[str]:
    return [] if value in (None, "", unless) else [name, str(value)]


def yaml_text(value: Any) -> str:
    """A flag's value as `--set` reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(yaml_text(v) for v in value) + "]"
    return flag_value(value)


def facts(view: View) -> Iterator[tuple[str, Any]]:
    """What the figures depend on."""
    job, profile = view.study.job, view.profile
    yield (
        "engine",
        ("simulator of vLLM " if view.study.simulated else "vLLM ") + str(job.get("vllm_version", "")),
    )
    yield "GPU", job.get("gpu")
    if profile is not None:
        yield "driver", profile.driver
        for name, value in profile.machine.items():
            if name.lower() not in ("gpu", "driver", "vllm"):
                yield name.replace("_", " "), value
    yield "model", job.get("model")
    yield "SLO", limits_text(job.get("slo") or {})
    yield "trace", job.get("trace") or "the trace that ships"
    yield "digest of the trace", job.get("trace_digest")
    if profile is not None:
        low, high = profile.window
        yield "part of the trace in the finals", f"{low:.0%} to {high:.0%}"
        yield "price of a GPU", profile.cost.text if profile.cost else None
        yield "made", profile.created
    yield "requests in a replay, at the least", f"{job.get('requests', 0):,}"
    yield "seed", job.get("seed")
    yield "digest of the search space", job.get("space_digest")
