"""A trace's figures as one SVG: its rate over time, its lengths, and what each max-model-len covers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tuner.traces.inspection import Inspection

_WIDTH, _HEIGHT = 760, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 34, 36
_INK, _FILL, _FRAME = "#33373d", "#3b7dd8", "#c9ced6"


def plot_svg(figures: Inspection) -> str:
    """The picture; three panels under each other."""
    start = figures.rate_over_time
    step = start[1][0] - start[0][0] if len(start) > 1 else max(figures.duration_s, 1.0)
    rates = [(_clock(at), rate) for at, rate in start] or [("0 s", float(figures.requests))]
    lengths = [(f"{edge:,}", float(count)) for edge, count in figures.length_histogram]
    covered = [(f"{length:,}", 100 * share) for length, share in figures.coverage.items()]
    panels = [
        _panel(0, f"requests/s over time (bars of {step:,.3g} s)", rates),
        _panel(1, "requests by length, prompt + answer, tokens", lengths),
        _panel(2, "% of the requests that fit a max-model-len", covered, full=100.0),
    ]
    height = _HEIGHT * len(panels) + 40
    title = escape(f"{figures.path or figures.format}: {figures.requests:,} requests")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{_INK}">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n'
        f'<text x="{_LEFT}" y="24" font-size="15">{title}</text>\n' + "\n".join(panels) + "\n</svg>\n"
    )


def _panel(row: int, title: str, bars: Sequence[tuple[str, float]], full: float | None = None) -> str:
    """One panel of bars with labels below and a scale at the left; values of 0 or more."""
    top = 40 + row * _HEIGHT + _TOP
    height, width = _HEIGHT - _TOP - _BOTTOM, _WIDTH - _LEFT - _RIGHT
    highest = full or max((value for _, value in bars), default=0.0) or 1.0
    slot = width / max(len(bars), 1)
    every = max(1, -(-len(bars) // 10))
    marks = [f'<text x="{_LEFT}" y="{top - 10}">{escape(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        marks.append(f'<line x1="{_LEFT}" x2="{_LEFT + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_FRAME}"/>')
        marks.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * share:,.3g}</text>')
    for index, (label, value) in enumerate(bars):
        x, tall = _LEFT + index * slot, height * min(value / highest, 1.0)
        marks.append(
            f'<rect x="{x + slot * 0.08:.1f}" y="{top + height - tall:.1f}" width="{slot * 0.84:.1f}" '
            f'height="{tall:.1f}" fill="{_FILL}"><title>{escape(label)}: {value:,.4g}</title></rect>'
        )
        if index % every == 0:
            middle = x + slot / 2
            marks.append(
                f'<text x="{middle:.1f}" y="{top + height + 16}" text-anchor="middle">{escape(label)}</text>'
            )
    return "\n".join(marks)


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
