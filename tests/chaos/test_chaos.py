"""Twenty studies, each hit by a random fault at a random moment (`chaos.py` runs two hundred)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos import chaos  # noqa: E402

STUDIES = 20 if os.environ.get("CI") or os.environ.get("KIMI_TUNE_LONG") else 3


@pytest.mark.timeout(1800)
def test_no_fault_costs_more_than_the_trial_in_hand() -> None:
    outcomes, summary = chaos(STUDIES, seed=1, lanes=min(STUDIES, 4))
    assert not summary["wrong"]
    assert any(done.hit for done in outcomes)
