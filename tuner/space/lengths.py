"""Lengths for max-model-len that a trace suggests: what covers 99.5%, 99.9% and all of its requests.

Not 99%: a part of the trace may hold more of the long ones, and above 1% rejected no P99 can be met.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tuner.traces.trace import Trace

LEVELS = (0.995, 0.999, 1.0)


def length_choices(
    trace: Trace, model_length: int, levels: Iterable[float] = LEVELS
) -> tuple[tuple[int, float], ...]:
    """Lengths in tokens with the share of the trace that each covers, ascending.

    For each level the shortest length that covers it, rounded up (to 256 tokens up to 8,192, to 1,024
    above), and the model's own, which none exceeds. A level that the model's length cannot cover adds
    nothing.
    """
    lengths = {model_length}
    if len(trace):
        total = np.sort(trace.input_tokens.astype(np.int64) + trace.output_tokens)
        for level in levels:
            rank = min(max(math.ceil(level * len(total)), 1), len(total))
            lengths.add(min(_rounded_up(int(total[rank - 1])), model_length))
    return tuple((length, trace.coverage(length)) for length in sorted(lengths))


def _rounded_up(tokens: int) -> int:
    multiple = 256 if tokens <= 8192 else 1024
    return max(math.ceil(tokens / multiple) * multiple, multiple)
