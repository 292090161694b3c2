"""Charts as inline SVG: colours by class, so that the page's light or dark palette holds; a title and a
description for screen readers; every point says its figures when it is pointed at.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tuner.report.page.charts import Bar, BarChart, Chart, Point, Series, XyChart
from tuner.report.page.scale import Scale, make_scale, tick_text

WIDTH = 640
_HEIGHT = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 12, 48
_LEGEND_ROW = 22
_CHAR = 7.7
"""Width of a character at the charts' size, generously."""
_BAR_ROW, _BAR_NAME, _BAR_TEXT = 30, 210, 96
_SIZE = 4.5


def chart_svg(chart: Chart) -> str:
    """The picture as one `<svg>` element."""
    return _xy_svg(chart) if isinstance(chart, XyChart) else _bars_svg(chart)


def svg_file(chart: Chart) -> str:
    """The picture as a file of its own, light or dark by who looks at it."""
    from tuner.report.page.html import style

    svg = chart_svg(chart).replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" ', 1)
    ground = '<rect width="100%" height="100%" fill="var(--bg)"/>'
    font = "text{font-family:sans-serif}"
    return svg.replace("</desc>", f"</desc><style>{style()}{font}</style>{ground}", 1)


def _frame(chart: Chart, height: float, parts: list[str]) -> str:
    head = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="{chart.id}-t {chart.id}-d">'
        f'<title id="{chart.id}-t">{escape(chart.title)}</title>'
        f'<desc id="{chart.id}-d">{escape(chart.description)}</desc>'
    )
    return head + "".join(parts) + "</svg>"


def _xy_svg(chart: XyChart) -> str:
    legend, top = _legend(chart)
    height = top + _HEIGHT
    points = [p for series in chart.series for p in series.points]
    xs = [p.x for p in points]
    ys = [p.y for p in points if not p.over] + [rule.y for rule in chart.rules]
    if chart.diagonal:
        xs, ys = [*xs, *ys], [*ys, *xs]
    x = make_scale(
        min([0.0, *xs] if not chart.whole_x else [1.0, *xs]),
        max(xs, default=1.0),
        _LEFT,
        WIDTH - _RIGHT,
        whole=chart.whole_x,
        ticks=6,
    )
    y = make_scale(min([0.0, *ys]), max(ys, default=1.0) * 1.02, height - _BOTTOM, top + _TOP)
    parts = [legend, *_axes(chart, x, y, height)]
    if chart.diagonal:
        reach = min(x.high, y.high)
        parts.append(
            f'<line class="rule" x1="{x.at(0):.1f}" y1="{y.at(0):.1f}" '
            f'x2="{x.at(reach):.1f}" y2="{y.at(reach):.1f}"/>'
        )
    for rule in chart.rules:
        at = y.at(rule.y)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="rule-text" x="{_LEFT + 6}" y="{at - 6:.1f}">{escape(rule.label)}</text>')
    for series in chart.series:
        parts.extend(_series(series, x, y))
    return _frame(chart, height, parts)


def _legend(chart: XyChart) -> tuple[str, float]:
    """The names of the series with their marks, in as many rows as they need, and their height."""
    parts, x, row = [], float(_LEFT), 0
    for series in chart.series:
        wide = 26 + _CHAR * len(series.name) + 14
        if x > _LEFT and x + wide > WIDTH - _RIGHT:
            x, row = float(_LEFT), row + 1
        y = 13 + row * _LEGEND_ROW
        if series.line:
            parts.append(f'<line class="line {series.tone}" x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}"/>')
        parts.append(_mark(series, x + 9, y, None))
        parts.append(f'<text x="{x + 24}" y="{y + 4}">{escape(series.name)}</text>')
        x += wide
    return "".join(parts), _LEGEND_ROW * (row + 1) + 4.0


def _axes(chart: XyChart, x: Scale, y: Scale, height: float) -> Iterator[str]:
    bottom = height - _BOTTOM
    for tick in y.ticks:
        at = y.at(tick)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield _tick(_LEFT - 8, at + 4, "end", tick)
    for tick in x.ticks:
        at = x.at(tick)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom:.1f}" y2="{bottom + 5:.1f}"/>'
        yield _tick(at, bottom + 19, "middle", tick)
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{height - 8:.1f}" text-anchor="middle">{escape(chart.x_name)}</text>'
    centre = (y.start + y.end) / 2
    yield (
        f'<text transform="rotate(-90 14 {centre:.1f})" x="14" y="{centre:.1f}" text-anchor="middle">'
        f"{escape(chart.y_name)}</text>"
    )


def _tick(x: float, y: float, anchor: str, value: float) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{tick_text(value)}</text>'


def _series(series: Series, x: Scale, y: Scale) -> Iterator[str]:
    places = [(x.at(p.x), y.at(y.high if p.over else p.y)) for p in series.points]
    if series.line and len(places) > 1:
        path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
        for right, level in places[1:]:
            path += f"H{right:.1f}V{level:.1f}" if series.step else f"L{right:.1f} {level:.1f}"
        yield f'<path class="line {series.tone}" d="{path}"/>'
    for point, (px, py) in zip(series.points, places, strict=True):
        yield _mark(series, px, py, point)


def _mark(series: Series, x: float, y: float, point: Point | None) -> str:
    s = _SIZE
    marker = "up" if point is not None and point.over else series.marker
    side = 2 * s - 1
    shapes = {
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{s}"',
        "square": f'<rect x="{x - s + 0.5:.1f}" y="{y - s + 0.5:.1f}" width="{side}" height="{side}"',
        "triangle": f'<path d="M{x - s:.1f} {y + s - 1:.1f}h{2 * s}l{-s} {-2 * s + 1}z"',
        "up": f'<path d="M{x - s:.1f} {y + 2 * s:.1f}h{2 * s}l{-s} {-2 * s}z"',
        "diamond": f'<path d="M{x:.1f} {y - s - 1:.1f}l{s + 1} {s + 1}l{-s - 1} {s + 1}l{-s - 1} {-s - 1}z"',
        "cross": f'<path class="stroke" d="M{x - s:.1f} {y - s:.1f}l{2 * s} {2 * s}m0 {-2 * s}l{-2 * s} {2 * s}"',  # noqa: E501
    }
    shape = shapes.get(marker)
    if shape is None:
        return ""
    title = f"<title>{escape(point.label)}</title>" if point is not None and point.label else ""
    return f'<g class="mark {series.tone}">{shape}/>{title}</g>'


def _bars_svg(chart: BarChart) -> str:
    height = _TOP + _BAR_ROW * len(chart.bars) + 30
    values = [bar.value for bar in chart.bars]
    scale = make_scale(
        min([0.0, *values]), max([0.0, *values]) or 1e-9, _BAR_NAME, WIDTH - _BAR_TEXT, ticks=4
    )
    zero = scale.at(0.0)
    parts = [
        f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="{_TOP}" y2="{height - 30}"/>',
        f'<text x="{_BAR_NAME}" y="{height - 8}">{escape(chart.value_name)}</text>',
    ]
    for row, bar in enumerate(chart.bars):
        parts.extend(_bar(bar, scale, zero, _TOP + row * _BAR_ROW))
    return _frame(chart, height, parts)


def _bar(bar: Bar, scale: Scale, zero: float, top: float) -> Iterator[str]:
    end = scale.at(bar.value)
    name = bar.name if len(bar.name) <= 29 else bar.name[:28] + "…"
    yield f'<text x="{_BAR_NAME - 10}" y="{top + 19}" text-anchor="end">{escape(name)}</text>'
    yield (
        f'<rect class="bar {bar.tone}" x="{min(zero, end):.1f}" y="{top + 5}" '
        f'width="{max(abs(end - zero), 1.5):.1f}" height="{_BAR_ROW - 12}">'
        f"<title>{escape(f'{bar.name}: {bar.text}')}</title></rect>"
    )
    yield f'<text x="{max(zero, end) + 8:.1f}" y="{top + 19}">{escape(bar.text)}</text>'
