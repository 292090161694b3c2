"""How the simulator did: what it predicted before a launch, and what the launch carried."""

from __future__ import annotations

from statistics import median

from tuner.profiles.evidence import PredictionRow
from tuner.report.content.view import View
from tuner.report.page.blocks import Block, Column, Picture, Section, Table, Text
from tuner.report.words import rate

_ROWS = 40


def predictions(view: View) -> list[PredictionRow]:
    """The profile's rows, else those that the trials keep."""
    if view.profile is not None and view.profile.predictions:
        return list(view.profile.predictions)
    rows = []
    for trial in view.study.own:
        said = trial.attrs.get("predicted") or {}
        if trial.outcome == "ok" and trial.value and said.get("rps"):
            before = int(said.get("launches_before", trial.number))
            rows.append(PredictionRow(f"trial {trial.number + 1}", float(said["rps"]), trial.value, before))
    return rows


def simulator_section(view: View) -> Section | None:
    """The section, where anything was predicted and measured."""
    rows = predictions(view)
    if not rows:
        return None
    from tuner.report.content.pictures import predicted

    off = [abs(r.predicted_rps / r.measured_rps - 1.0) for r in rows if r.measured_rps > 0]
    blocks: list[Block] = []
    if off:
        text = f"The predictions were off by {median(off):.1%} (median of {len(off)}), at most {max(off):.1%}"
        if len(off) >= 4:
            text += f"; in the later half, after calibration, by {median(off[len(off) // 2 :]):.1%}"
        blocks.append(Text(text + "."))
    if (chart := predicted(view)) is not None:
        blocks.append(Picture(chart))
    table = tuple(
        (
            r.label,
            str(r.launches_before),
            rate(r.predicted_rps),
            rate(r.measured_rps),
            f"{r.predicted_rps / r.measured_rps - 1.0:+.1%}" if r.measured_rps else "-",
        )
        for r in rows[-_ROWS:]
    )
    columns = ("configuration", "launches before", "predicted, requests/s", "measured, requests/s", "error")
    blocks.append(
        Table("Predicted and measured", tuple(Column(c, c != "configuration") for c in columns), table)
    )
    return Section("simulator", "How the simulator did", tuple(blocks))
