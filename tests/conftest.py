"""What every test shares: property tests without deadlines, for a busy machine is no failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any-machine", deadline=None, max_examples=80)
settings.load_profile("any-machine")
