"""What every test shares: property tests without deadlines, and the same examples on every run in CI."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile(
    "any-machine", deadline=None, max_examples=80, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("any-machine")
