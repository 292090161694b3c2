"""Charts as Plotly figures: plain JSON, so that Plotly itself is not needed here."""

from __future__ import annotations

from typing import Any

import orjson

from tuner.report.page.charts import BarChart, Chart, Series, XyChart

_COLOURS = {
    "default": "#7d8794",
    "tuned": "#2f7fd6",
    "other": "#b08a2e",
    "good": "#2f9e5a",
    "bad": "#d9493e",
    "warn": "#c27f0e",
}
_MARKERS = {
    "circle": "circle",
    "square": "square",
    "triangle": "triangle-up",
    "diamond": "diamond",
    "cross": "x",
}
_GREY = "#808894"
"""Text and axes: readable on white and on black, since the dashboard has both."""


class Figure:
    """What `optuna_dashboard.save_plotly_graph_object` takes: something with `to_json`."""

    def __init__(self, chart: Chart) -> None:
        self.id = f"kimi-tune-{chart.id}"
        self._chart = chart

    def to_json(self) -> str:
        """The figure as Plotly reads it."""
        chart = self._chart
        made = _xy(chart) if isinstance(chart, XyChart) else _bars(chart)
        return orjson.dumps(made).decode()


def _layout(chart: Chart, x_name: str, y_name: str) -> dict[str, Any]:
    axis = {"color": _GREY, "gridcolor": "rgba(128,136,148,0.25)", "zeroline": False}
    return {
        "title": {"text": _escaped(chart.title), "x": 0.02, "xanchor": "left"},
        "font": {"color": _GREY},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {**axis, "title": {"text": x_name}, "rangemode": "tozero"},
        "yaxis": {**axis, "title": {"text": y_name}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    }


def _xy(chart: XyChart) -> dict[str, Any]:
    layout = _layout(chart, chart.x_name, chart.y_name)
    line = {"color": _COLOURS["bad"], "dash": "dash", "width": 1.5}
    layout["shapes"] = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": r.y, "y1": r.y, "line": line}
        for r in chart.rules
    ]
    if chart.diagonal:
        high = max((max(p.x, p.y) for s in chart.series for p in s.points), default=1.0)
        layout["shapes"].append({"type": "line", "x0": 0, "y0": 0, "x1": high, "y1": high, "line": line})
    layout["annotations"] = [
        {"xref": "paper", "x": 0.01, "y": r.y, "text": _escaped(r.label), "showarrow": False, "yshift": 10,
         "xanchor": "left", "font": {"color": _COLOURS["bad"]}}
        for r in chart.rules
    ]  # fmt: skip
    return {"data": [_trace(s) for s in chart.series], "layout": layout}


def _trace(series: Series) -> dict[str, Any]:
    symbol = _MARKERS.get(series.marker, "circle")
    lines = ["lines"] if series.line else []
    marks = ["markers"] if series.marker != "none" else []
    return {
        "type": "scatter",
        "mode": "+".join([*lines, *marks]),
        "name": _escaped(series.name),
        "x": [p.x for p in series.points],
        "y": [p.y for p in series.points],
        "text": [_escaped(p.label) for p in series.points],
        "hoverinfo": "text",
        "marker": {
            "color": _COLOURS[series.tone],
            "symbol": symbol,
            "size": 8,
        },
        "line": {
            "color": _COLOURS[series.tone],
            "shape": "hv" if series.step else "linear",
            "width": 1 if series.tone == "other" else 2,
        },
    }


def _bars(chart: BarChart) -> dict[str, Any]:
    layout = _layout(chart, chart.value_name, "")
    layout["yaxis"] |= {"autorange": "reversed", "automargin": True}
    data = {
        "type": "bar",
        "orientation": "h",
        "x": [bar.value for bar in chart.bars],
        "y": [_escaped(bar.name) for bar in chart.bars],
        "text": [_escaped(bar.text) for bar in chart.bars],
        "marker": {"color": [_COLOURS[bar.tone] for bar in chart.bars]},
    }
    return {"data": [data], "layout": layout}


def _escaped(text: str) -> str:
    """Plotly reads some HTML in its texts; what came from outside is not to be read as such."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
