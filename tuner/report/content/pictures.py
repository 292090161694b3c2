"""The pictures of a study: load against P99, how the search went, what flags gave, predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.report.content.predictions import predictions
from tuner.report.content.view import Replays, View, p99_of
from tuner.report.page.charts import Bar, BarChart, Chart, Point, Rule, Series, XyChart
from tuner.report.words import changes, duration, latency, rate, shown
from tuner.study.kept import KeptTrial

_TOP_OF_SLO = 2.0
"""P99s above so many times the limit are drawn at the picture's upper edge."""
_OTHERS = 2
_OUTCOMES = (
    ("ok", "met the SLO", "good", "circle"),
    ("slo", "missed it", "warn", "triangle"),
    ("crash", "could not start", "bad", "cross"),
)


def pictures(view: View) -> list[Chart]:
    """Every picture that the study has figures for."""
    found = [*load_curves(view), search_progress(view), flag_gains(view), predicted(view)]
    return [chart for chart in found if chart is not None]


def load_curves(view: View) -> list[XyChart]:
    """Load against P99, one picture for each limit of the SLO."""
    charts = (_load_curve(view, metric, limit) for metric, limit in view.study.limits.items())
    return [chart for chart in charts if chart.series]


def _load_curve(view: View, metric: str, limit: float) -> XyChart:
    series = [
        _curve("vLLM's defaults", view.default_replays, metric, limit, "default", "square"),
        _curve(_best_name(view), view.tuned_replays, metric, limit, "tuned", "circle"),
    ]
    for trial in view.others(_OTHERS):
        name = f"trial {trial.number + 1}"
        series.append(_curve(name, trial.launch.replays, metric, limit, "other", "diamond"))
    name = shown(metric)
    return XyChart(
        id=f"load-{metric}",
        title=f"P99 of {name} against the load",
        description=_said(view, metric, limit),
        x_name=view.load_name,
        y_name=f"P99 of {name}, s",
        series=tuple(s for s in series if s.points),
        rules=(Rule(limit, f"SLO {duration(limit)}"),),
    )


def trial_curve(view: View, trial: KeptTrial) -> XyChart:
    """Load against P99 of one trial, of the first limit of the SLO."""
    metric, limit = next(iter(view.study.limits.items()))
    name = f"trial {trial.number}"
    return XyChart(
        id=f"trial-{trial.number}",
        title=f"P99 of {shown(metric)} against the load: {name}",
        description=changes(trial.changed),
        x_name=view.load_name,
        y_name=f"P99 of {shown(metric)}, s",
        series=(_curve(name, trial.launch.replays, metric, limit, "tuned", "circle"),),
        rules=(Rule(limit, f"SLO {duration(limit)}"),),
    )


def _best_name(view: View) -> str:
    if view.tuned is not None:
        return "recommended"
    best = view.study.best
    return f"best so far (trial {best.number + 1})" if best else "best so far"


def _curve(name: str, replays: Replays, metric: str, limit: float, tone: str, marker: str) -> Series:
    by_load: dict[float, Mapping[str, Any]] = {float(r["load"]): r for r in replays if "load" in r}
    points: list[Point] = []
    for load, replay in sorted(by_load.items()):
        if points and points[-1].over:
            break  # higher loads only say the same again
        p99 = p99_of(replay, metric)
        over = p99 is None or p99 > _TOP_OF_SLO * limit
        text = "stopped, over the SLO" if p99 is None else f"P99 {latency(p99)}"
        label = f"{name}: {rate(load)}, {text}, {replay.get('verdict', '')}"
        points.append(Point(load, _TOP_OF_SLO * limit if over or p99 is None else p99, label, over))
    return Series(name, tuple(points), tone, marker, line=True)


def _said(view: View, metric: str, limit: float) -> str:
    """The picture in words: the highest load of each line that stays below the SLO."""
    parts = []
    for name, replays in (
        ("vLLM's defaults", view.default_replays),
        (_best_name(view), view.tuned_replays),
    ):
        passed = [
            float(r["load"]) for r in replays if r.get("verdict") == "PASS" or _within(r, metric, limit)
        ]
        if passed:
            parts.append(f"{name} within the SLO up to {rate(max(passed))}")
        elif replays:
            parts.append(f"{name} over the SLO at every load tried")
    unit = "users" if view.by_users else "requests/s"
    over = "Marks at the upper edge are replays far over the SLO or stopped when that was certain."
    return f"In {unit}: {'; '.join(parts) or 'no replay was kept'}. {over}"


def _within(replay: Mapping[str, Any], metric: str, limit: float) -> bool:
    p99, verdict = p99_of(replay, metric), replay.get("verdict")
    return verdict == "PASS" or (p99 is not None and p99 <= limit and verdict == "CANNOT TELL")


def search_progress(view: View) -> XyChart | None:
    """The load that each trial carries and the feasible frontier: the best so far."""
    told = [t for t in view.study.own if t.value is not None]
    if not told:
        return None
    series = []
    best, frontier = 0.0, []
    for trial in told:
        if trial.outcome == "ok":
            best = max(best, trial.value or 0.0)
        if best > 0.0:
            frontier.append(Point(trial.number + 1, best))
    series.append(Series("feasible frontier", tuple(frontier), "tuned", "none", line=True, step=True))
    for outcome, name, tone, marker in _OUTCOMES:
        points = tuple(
            Point(
                trial.number + 1,
                0.0 if outcome == "crash" else trial.value or 0.0,
                f"trial {trial.number + 1}, {name}: {trial.cause or changes(trial.changed)}",
            )
            for trial in told
            if trial.outcome == outcome
        )
        series.append(Series(name, points, tone, marker))
    described = f"{len(told)} trials; the best carries {rate(best)} {view.study.unit}." if best else (
        f"{len(told)} trials; none met the SLO."
    )  # fmt: skip
    return XyChart(
        id="search",
        title="How the search went",
        description=described + " A trial that lost to the best so far stands at its estimate.",
        x_name="trial",
        y_name=f"load within the SLO, {view.study.unit}",
        series=tuple(s for s in series if s.points),
        whole_x=True,
    )


def flag_gains(view: View) -> BarChart | None:
    """What each changed flag gave."""
    gains = view.flag_gains
    if not gains:
        return None
    bars = tuple(
        Bar(
            name=changes({gain.flag: gain.value}),
            value=gain.gain * 100.0,
            text=f"{gain.gain:+.1%}",
            tone="tuned" if gain.gain >= 0 else "bad",
        )
        for gain in sorted(gains, key=lambda g: -g.gain)
    )
    best = bars[0]
    return BarChart(
        id="flags",
        title="What each flag gave",
        description=f"Share of the load that goes when a flag is put back; most: {best.name}, {best.text}.",
        value_name="share of the load that goes when it is put back, %",
        bars=bars,
    )


def predicted(view: View) -> XyChart | None:
    """Predicted against measured capacity."""
    rows = predictions(view)
    if not rows:
        return None
    points = tuple(
        Point(r.measured_rps, r.predicted_rps, f"{r.label}: predicted {rate(r.predicted_rps)}, "
              f"measured {rate(r.measured_rps)}")
        for r in rows
    )  # fmt: skip
    return XyChart(
        id="predicted",
        title="Predicted against measured",
        description=f"{len(rows)} configurations; on the dashed line prediction and measurement agree.",
        x_name="measured load within the SLO, requests/s",
        y_name="predicted, requests/s",
        series=(Series("configurations", points, "tuned", "circle"),),
        diagonal=True,
    )
