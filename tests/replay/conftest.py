"""Traces and servers for the replay's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from even_traces import even_trace

from tuner.replay.mock import MockServer
from tuner.traces.trace import Trace

# no limit of time on an example: a busy machine is no fault of the code


@pytest.fixture
def make_trace() -> Callable[..., Trace]:
    """Evenly spaced requests of one length."""
    return even_trace


@pytest.fixture
def serve() -> Iterator[Callable[..., MockServer]]:
    """Starts mock servers, and stops them."""
    started: list[MockServer] = []

    def start(*args: object, **options: object) -> MockServer:
        server = MockServer(*args, **options)  # type: ignore[arg-type]
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()
