"""A few step times of a problem, so that its digest changes with the truth's code and with nothing else."""

from __future__ import annotations

from search_parts.engine import Truth
from search_parts.setting import Setting
from search_parts.steps import TrueSteps

_BATCHES = (1, 40, 300)


def probe(truth: Truth) -> list[float]:
    """Step times at two settings, to six digits, and what memory each leaves."""
    longest = truth.shape.max_model_len
    found: list[float] = []
    for setting in (
        Setting(256, 2048, 16, longest, 0.95, True, True, 1, 512, 1, longest),
        Setting(64, 8192, 64, longest // 4, 0.85, False, False, 4, 128, 1, longest),
    ):
        steps = TrueSteps(truth.gpu, truth.shape, truth.hidden.rates, setting, truth.hidden.effects)
        found += [steps.frontend_token_s, steps.frontend_crowd_s, steps.load_token_s]
        for batch in _BATCHES:
            found += steps.decode(batch)
            found.append(steps.mixed(batch, batch * 900, 1500, 1500 * 800, 4000, 3, batch + 2))
        flags = {"gpu-memory-utilization": setting.utilization, "max-num-batched-tokens": setting.batched}
        found.append(truth.memory.plan(flags).kv_gib)
    return [float(f"{value:.6g}") for value in found]
