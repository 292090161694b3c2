"""An engine in scaled real time: what takes an hour on a GPU takes a second here, and takes it truly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.engines.base import Engine, LaunchFailure, Phase, Progress, Server, ServerFacts
from tuner.replay.records import Replay, Workload
from tuner.replay.stop import Curtailment
from tuner.space.config import LaunchConfig


class PacedEngine:
    """Another engine, slowed down: `scale` real seconds for each second of its time.

    It computes as before and then sleeps what is left, so figures are the same and only the clock differs.
    """

    def __init__(self, engine: Engine, scale: float) -> None:
        self._engine, self._scale = engine, scale

    @property
    def name(self) -> str:
        """The inner engine's."""
        return self._engine.name

    @property
    def vllm_version(self) -> str:
        """The inner engine's."""
        return self._engine.vllm_version

    @property
    def deterministic(self) -> bool:
        """As the inner engine."""
        return self._engine.deterministic

    def launch(self, config: LaunchConfig, folder: Path, phase: Phase | None = None) -> Server:
        """Launch, in scaled real time."""
        started = time.monotonic()
        try:
            server = self._engine.launch(config, folder, phase)
        except LaunchFailure as failure:
            self._sleep(started, failure.seconds)
            raise
        self._sleep(started, server.facts.startup_s)
        return _PacedServer(server, self._sleep)

    def startup_estimate_s(self) -> float:
        """The inner engine's."""
        return self._engine.startup_estimate_s()

    def close(self) -> None:
        """Close the inner engine."""
        self._engine.close()

    def _sleep(self, started: float, seconds: float) -> None:
        time.sleep(max(0.0, started + self._scale * seconds - time.monotonic()))


class _PacedServer:
    def __init__(self, server: Server, sleep: Callable[[float, float], None]) -> None:
        self._server, self._sleep = server, sleep

    @property
    def facts(self) -> ServerFacts:
        return self._server.facts

    def replay(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        started = time.monotonic()
        replay = self._server.replay(workload, stop, progress)
        self._sleep(started, replay.engine_s)
        return replay

    def stop(self) -> None:
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
