"""Pictures as data: points, lines and bars with their units, drawn as SVG here and by Plotly elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One point, with what it says when it is pointed at. `over`: its value is above what is shown."""

    x: float
    y: float
    label: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one kind.

    `tone` is one of `default`, `tuned`, `other`, `good`, `bad`, `warn`; `marker` one of `circle`, `square`,
    `triangle`, `diamond`, `cross`, `none`: kinds differ in shape too, not in colour alone.
    """

    name: str
    points: tuple[Point, ...]
    tone: str
    marker: str = "circle"
    line: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the whole picture, such as the SLO."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class XyChart:
    """Points and lines over two axes, each named with its unit. `diagonal` draws y = x."""

    id: str
    title: str
    description: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    diagonal: bool = False
    whole_x: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar and the text at its end."""

    name: str
    value: float
    text: str
    tone: str = "tuned"


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars from zero, to either side."""

    id: str
    title: str
    description: str
    value_name: str
    bars: tuple[Bar, ...]


Chart = XyChart | BarChart
