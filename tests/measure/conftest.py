"""Replays made by hand, as a fixture."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from replays_by_hand import replay_of

from tuner.replay import Replay

# no limit of time on an example: a busy machine is no fault of the code


@pytest.fixture
def make_replay() -> Callable[..., Replay]:
    """A replay with these latencies, evenly spaced; `failed` are indices of requests without an answer."""
    return replay_of
