"""Figures and configurations in the words that people read: units shown, no more digits than are true."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOTHING = "-"


def seconds(value: float | None) -> str:
    """A latency: "0.84 s", "24.1 s"; a dash where there is none, "over" for infinity."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "over"
    digits = 2 if value < 10 else 1
    return f"{value:.{digits}f} s"


def span(value_s: float) -> str:
    """A length of time as a plan says it: "45 s", "12 min", "1 h 05 min"."""
    if value_s < 90:
        return f"{value_s:.0f} s"
    minutes = round(value_s / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def rate(value_rps: float) -> str:
    """A load in requests a second, three significant digits."""
    if value_rps <= 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(value_rps)))
    return f"{value_rps:.{digits}f}"


def percent(share: float) -> str:
    """A share as a percentage: "99.7%", and never "100%" unless it is."""
    if share >= 1.0:
        return "100%"
    return f"{min(math.floor(share * 1000) / 10, 99.9):.1f}%"


def gain(value: float | None) -> str:
    """A ratio over the default: "+42%"."""
    return NOTHING if value is None else f"{(value - 1.0) * 100:+.0f}%"


def latency(value_s: float | None) -> str:
    """A latency with its unit, milliseconds below a tenth of a second: "5.21 ms", "0.84 s"."""
    if value_s is not None and 0.0 <= value_s < 0.1:
        return f"{value_s * 1000:.2f} ms"
    return seconds(value_s)


def interval(low: float | None, high: float | None) -> str:
    """A 95% interval of a latency: "24.0 s to 27.1 s"."""
    if low is None and high is None:
        return NOTHING
    return f"{latency(low)} to {'no bound' if high is None else latency(high)}"


def shown(metric: str) -> str:
    """A metric as the field writes it: E2E, TTFT, TPOT."""
    return metric.upper()


def limits_text(slo: Mapping[str, float]) -> str:
    """An SLO in words: "P99 of E2E within 30 s"."""
    parts = (f"{shown(name.removesuffix('_p99_s'))} within {duration(limit)}" for name, limit in slo.items())
    return "P99 of " + " and of ".join(parts) if slo else "no SLO"


def limits_short(slo: Mapping[str, float]) -> str:
    """An SLO in a table: "E2E 30 s"."""
    return ", ".join(f"{shown(n.removesuffix('_p99_s'))} {duration(limit)}" for n, limit in slo.items())


def duration(value_s: float) -> str:
    """A limit as exactly as it was given: "30 s", "50 ms"."""
    return f"{value_s * 1000:g} ms" if value_s < 1.0 else f"{value_s:g} s"


def flag_value(value: Any) -> str:
    """A flag's value as it is written on a command line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ",".join(flag_value(v) for v in value)
    return str(value)


def changes(flags: Mapping[str, Any]) -> str:
    """A configuration as its differences from vLLM's defaults, or "vLLM's defaults"."""
    if not flags:
        return "vLLM's defaults"
    return " ".join(f"{name}={flag_value(value)}" for name, value in sorted(flags.items()))
