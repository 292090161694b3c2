"""Where the engine time went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.report.content.view import View
from tuner.report.page.blocks import Block, Column, Picture, Section, Table, Text
from tuner.report.page.charts import Bar, BarChart
from tuner.report.words import span

_PARTS = ("launch", "warm-up", "replay", "failed")


def engine_time(view: View) -> dict[str, dict[str, float]]:
    """Seconds of launch, warm-up, replay and failed launches, for search and finals."""
    study = view.study
    search = dict.fromkeys(_PARTS, 0.0)
    for trial in study.own:
        went = {**trial.launch.went, **{k: v for k, v in trial.attrs.items() if v is not None}}
        _add(search, went, failed=trial.outcome not in ("ok", "slo"))
    finals = dict.fromkeys(_PARTS, 0.0)
    for launch in study.finals:
        _add(finals, launch.went, failed=launch.went.get("failure") is not None)
    told = sum(search.values()) + sum(finals.values())
    if study.engine_s - told > 1.0:
        finals["replay"] += study.engine_s - told
    return {"search": search, "finals": finals}


def _add(parts: dict[str, float], went: Mapping[str, Any], *, failed: bool) -> None:
    total = float(went.get("engine_s") or 0.0)
    if failed:
        parts["failed"] += total
        return
    launch = min(float(went.get("startup_s") or 0.0), total)
    warm = min(float(went.get("warm_up_s") or 0.0), total - launch)
    parts["launch"] += launch
    parts["warm-up"] += warm
    parts["replay"] += total - launch - warm


def time_section(view: View) -> Section | None:
    """The section, where anything was spent."""
    parts = engine_time(view)
    total = view.study.engine_s
    if total <= 0:
        return None
    sums = {name: sum(part[name] for part in parts.values()) for name in _PARTS}
    shown = [name for name in _PARTS if sums[name] > 0]
    bars = tuple(
        Bar(name, sums[name] / 3600.0, f"{span(sums[name])}, {sums[name] / total:.0%}", _TONES[name])
        for name in shown
    )
    kind = (
        "virtual engine time: what it would have taken on the GPU" if view.study.simulated else "engine time"
    )
    text = Text(f"{view.study.launches} launches, {span(total)} of {kind}.")
    chart = BarChart(
        "time",
        "Engine time",
        "; ".join(f"{bar.name} {bar.text}" for bar in bars),
        "hours of engine time",
        bars,
    )
    rows = tuple(
        (name, *(span(parts[phase][name]) for phase in ("search", "finals")), span(sums[name]))
        for name in shown
    )
    columns = (Column("", False), Column("search"), Column("finals"), Column("together"))
    table: Block = Table("Seconds of the engine by what it did", columns, rows)
    return Section("time", "Where the engine time went", (text, Picture(chart), table))


_TONES = {"launch": "default", "warm-up": "other", "replay": "tuned", "failed": "bad"}
