"""A slot's own process: one engine and its replay client, which takes orders through a pipe.

Started by `hosted.py` as `python -m tuner.slots.host DESCRIPTOR`. When the pipe closes, because the tuner has
ended in whatever way, it stops its server and ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tuner.engines.base import Engine, LaunchFailure, Server
from tuner.slots import wire
from tuner.space.config import LaunchConfig

UNWIND_LIMIT_S = 60.0
"""After so long without having stopped by itself the process ends at once; what it owns is then watched."""
_PROGRESS_EVERY_S = 0.2


class Host:
    """One engine that is driven by orders; also what a Ray actor holds."""

    def __init__(self, factory: Callable[[], Engine], say: Callable[..., None]) -> None:
        self._engine = factory()
        self._server: Server | None = None
        self._say = say
        self._told_s = 0.0

    def obey(self, order: str, *args: Any) -> tuple[Any, ...]:
        """Carry out one order and return the answer: its kind, then what belongs to it."""
        try:
            match order:
                case "launch":
                    return "facts", self._launch(*args)
                case "replay":
                    assert self._server is not None
                    workload, stop = args
                    return "replay", self._server.replay(workload, stop, self._progress)
                case "stop":
                    self._stop()
                    return ("stopped",)
                case _:
                    raise ValueError(order)
        except LaunchFailure as failure:
            return "failure", failure.to_json()
        except Exception as error:
            return "error", wire.error_to_json(error)

    def close(self) -> None:
        """Stop the server and let the engine go."""
        self._stop()
        self._engine.close()

    def _launch(self, config: LaunchConfig, folder: Path) -> Any:
        self._stop()
        self._server = self._engine.launch(config, folder, lambda text: self._say("phase", text))
        return self._server.facts

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _progress(self, done: int, planned: int) -> None:
        now = time.monotonic()
        if now - self._told_s >= _PROGRESS_EVERY_S:
            self._told_s = now
            self._say("progress", done, planned)


def main(descriptor: int) -> None:
    """Serve the orders that come through the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pipe = Connection(descriptor)
    try:
        path, cores, factory = pipe.recv()
    except (EOFError, OSError):
        return
    sys.path.extend(entry for entry in path if entry not in sys.path)
    if cores:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(0, cores)
    host: Host | None = None
    orders: queue.Queue[tuple[Any, ...]] = queue.Queue()
    try:
        try:
            host = Host(pickled(factory), lambda *said: _send(pipe, said))
        except Exception as error:
            _send(pipe, ("error", wire.error_to_json(error)))
            return
        threading.Thread(target=_listen, args=(pipe, orders), daemon=True).start()
        while True:
            _send(pipe, host.obey(*orders.get()))
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Timer(UNWIND_LIMIT_S, os._exit, (1,)).start()
        if host is not None:
            host.close()
        os._exit(0)


def pickled(factory: bytes) -> Callable[[], Engine]:
    """The factory, now that the path to its module is known; it comes from the tuner that started us."""
    import pickle

    made: Callable[[], Engine] = pickle.loads(factory)  # noqa: S301
    return made


def _listen(pipe: Connection, orders: queue.Queue[tuple[Any, ...]]) -> None:
    try:
        while True:
            orders.put(pipe.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGINT)


def _send(pipe: Connection, said: tuple[Any, ...]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more: the listener sees that too
        pipe.send(said)


if __name__ == "__main__":
    main(int(sys.argv[1]))
