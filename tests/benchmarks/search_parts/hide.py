"""What a problem hides, drawn from its seed: coefficients, memory, and its three effects."""

from __future__ import annotations

import numpy as np

from search_parts.effects import Effect
from search_parts.engine import Hidden
from search_parts.steps import Rates
from tuner.space.memory import Correction


def hide(seed: int, *effects: Effect) -> Hidden:
    """Coefficients off by up to 40%, weights and activations larger than arithmetic has them, memory that is
    taken outside vLLM's budget.
    """
    rng = np.random.default_rng([seed, 1])
    memory = Correction(
        weights_gib=float(rng.uniform(0.05, 0.4)),
        forward_gib=float(rng.uniform(0.0, 0.5)),
        sampler_gib=float(rng.uniform(0.0, 0.3)),
        other_gib=float(rng.uniform(0.0, 0.3)),
    )
    return Hidden(
        rates=Rates.drawn(seed),
        effects=effects,
        memory=memory,
        outside=float(rng.uniform(0.02, 0.04)),
        outside_batch=float(rng.uniform(0.02, 0.05)),
    )
