"""Axes with round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` laid over pixels `start` to `end`, with ticks at round values."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value lies, kept inside."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def make_scale(
    low: float, high: float, start: float, end: float, *, ticks: int = 5, whole: bool = False
) -> Scale:
    """A scale that holds `low` to `high` between round ends, with about so many ticks."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        low, high = (low, low + 1.0) if math.isfinite(low) else (0.0, 1.0)
    rough = (high - low) / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(r * power for r in _ROUND if r * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, float(round(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = tuple(step * k for k in range(first, last + 1))
    return Scale(marks[0], marks[-1], start, end, marks)


def tick_text(value: float) -> str:
    """A round value without superfluous digits."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"
