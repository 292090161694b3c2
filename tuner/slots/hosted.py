"""The tuner's side of a slot: an engine that runs in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tuner.engines.base import Engine, FailureKind, LaunchFailure, Phase, Progress, ServerFacts
from tuner.replay.records import Replay, Workload
from tuner.replay.stop import Curtailment
from tuner.slots import wire
from tuner.space.config import LaunchConfig

Say = Callable[..., None]
"""Called with what a slot says while it works: ("phase", text) or ("progress", done, planned)."""


class Link(Protocol):
    """A way to a host, wherever it runs."""

    def ask(self, say: Say, *order: Any) -> tuple[Any, ...]:
        """Send an order and wait for its answer.

        Raises:
            LaunchFailure: the host is gone.
        """
        ...

    @property
    def lives(self) -> bool: ...

    def close(self) -> None: ...


class ProcessLink:
    """A host in a child process, in a session of its own so that the terminal's Ctrl-C does not reach it."""

    def __init__(
        self, factory: Callable[[], Engine], environment: Mapping[str, str], cores: Sequence[int] = ()
    ) -> None:
        self._pipe, theirs = Pipe()
        environ = {**os.environ, **environment}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tuner.slots.host", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env={**environ, "PYTHONPATH": _path_to_here(environ.get("PYTHONPATH"))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._closed = False
        with contextlib.suppress(OSError):
            self._pipe.send((sys.path, tuple(cores), pickle.dumps(factory)))

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        return not self._closed and self._process.poll() is None

    def ask(self, say: Say, *order: Any) -> tuple[Any, ...]:
        try:
            self._pipe.send(order)
            while True:
                answer: tuple[Any, ...] = self._pipe.recv()
                if answer[0] not in ("phase", "progress"):
                    return answer
                say(*answer)
        except (EOFError, OSError) as error:
            raise LaunchFailure(FailureKind.SLOT_LOST, f"the process of its slot {self._end()}") from error

    def close(self) -> None:
        """Let it stop its server and end."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._pipe.close()
        try:
            self._process.wait(timeout=90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _end(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "does not answer"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


class HostedEngine:
    """An engine behind a link. `like` is the same engine here, for what needs no launch to be known."""

    def __init__(self, link: Link, like: Engine) -> None:
        self.link, self._like = link, like

    @property
    def name(self) -> str:
        """As the engine here."""
        return self._like.name

    @property
    def vllm_version(self) -> str:
        """As the engine here."""
        return self._like.vllm_version

    @property
    def deterministic(self) -> bool:
        """As the engine here."""
        return self._like.deterministic

    def launch(self, config: LaunchConfig, folder: Path, phase: Phase | None = None) -> HostedServer:
        """Start a server in the slot.

        Raises:
            LaunchFailure: it did not become ready, or the slot is gone (kind SLOT_LOST).
        """

        def say(kind: str, *said: Any) -> None:
            if kind == "phase" and phase is not None:
                phase(*said)

        kind, value = _answer(self.link.ask(say, "launch", config, folder.absolute()))
        assert kind == "facts"
        return HostedServer(self.link, value)

    def startup_estimate_s(self) -> float:
        """As the engine here."""
        return self._like.startup_estimate_s()

    def close(self) -> None:
        """End the slot's process."""
        self.link.close()


class HostedServer:
    """A server in a slot; its client runs there too."""

    def __init__(self, link: Link, facts: ServerFacts) -> None:
        self._link, self._facts = link, facts
        self._stopped = False

    @property
    def facts(self) -> ServerFacts:
        """What it said at start-up."""
        return self._facts

    def replay(
        self, workload: Workload, stop: Curtailment | None = None, progress: Progress | None = None
    ) -> Replay:
        """Have the slot's client offer the workload.

        Raises:
            LaunchFailure: the server died or hung, or the slot is gone.
        """

        def say(kind: str, *said: Any) -> None:
            if kind == "progress" and progress is not None:
                progress(*said)

        kind, value = _answer(self._link.ask(say, "replay", workload, stop))
        assert kind == "replay"
        replay: Replay = value
        return replay

    def stop(self) -> None:
        """Stop it; safe to call twice, and where the slot is gone."""
        if not self._stopped:
            self._stopped = True
            with contextlib.suppress(LaunchFailure):
                self._link.ask(lambda *said: None, "stop")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _answer(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    if answer[0] == "failure":
        raise LaunchFailure.from_json(answer[1])
    if answer[0] == "error":
        raise wire.error_from_json(answer[1])
    return answer


def _path_to_here(given: str | None) -> str:
    """So that the child finds this package however the tuner found it."""
    here = str(Path(__file__).parents[2])
    return os.pathsep.join([here, *([given] if given else [])])
