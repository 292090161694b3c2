"""What a server is sent before it is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.replay.records import Workload
from tuner.traces.trace import Trace

WARM_UP_CLASSES = 8
WARM_UP_OUTPUT_TOKENS = 32


def warm_up(trace: Trace) -> Workload:
    """A few requests that touch every length class: quantiles of the prompt length, at once, short answers.

    Kernels that are compiled on first use, and graphs that are loaded lazily, are then there.
    """
    order = np.argsort(trace.input_tokens, kind="stable")
    ranks = np.linspace(0, len(order) - 1, min(WARM_UP_CLASSES, len(order))).round().astype(np.int64)
    chosen = trace.take(np.sort(np.unique(order[ranks])))
    return Workload(
        replace(
            chosen,
            arrival_s=np.zeros(len(chosen)),
            output_tokens=np.minimum(chosen.output_tokens, WARM_UP_OUTPUT_TOKENS).astype(np.int32),
        )
    )
