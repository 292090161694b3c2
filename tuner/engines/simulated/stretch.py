"""Closed forms for stretches of decode steps, each longer than the one before by the same amount."""

from __future__ import annotations

import math


def steps_until(wanted_s: float, first_s: float, grow_s: float, most: int) -> int:
    """Fewest steps, of first_s, first_s + grow_s, … seconds, that last `wanted_s` or more; at most `most`."""
    if grow_s <= 1e-12 * first_s:
        steps = math.ceil(wanted_s / first_s)
    else:
        half = first_s - grow_s / 2.0
        steps = math.ceil((math.sqrt(half * half + 2.0 * grow_s * wanted_s) - half) / grow_s)
    if steps > most:
        steps = most
    if steps < 1:
        steps = 1
    while steps > 1 and (steps - 1) * first_s + grow_s * ((steps - 1) * (steps - 2) // 2) >= wanted_s:
        steps -= 1
    while steps < most and steps * first_s + grow_s * (steps * (steps - 1) // 2) < wanted_s:
        steps += 1
    return steps
