"""An OpenAI-compatible server with a known truth and faults on demand, for tests and benchmarks.

It keeps its own log of when each request came and when its tokens left, on the clock that the client uses.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tuner.replay.mock_wire import Fault, Peer, Served, Timing

__all__ = ["Fault", "MockServer", "Served", "Timing", "main"]


class MockServer:
    """The server, in a thread of its own. A context manager: `with MockServer() as server: server.url`.

    `fault` is what every request meets, or a function of the request's number (counted from 0). `text_only`
    refuses token ids, `keep_alive_s` closes connections that lie idle so long, `key` is asked for where set.
    `accepts` False makes it list another model. `keep_prompts` puts prompts into the log.
    """

    def __init__(
        self,
        timing: Timing = Timing(),  # noqa: B008 - frozen
        *,
        fault: Fault | Callable[[int], Fault] = Fault.NONE,
        model: str = "mock",
        key: str | None = None,
        text_only: bool = False,
        template_tokens: int = 7,
        tokens_a_word: float = 1.0,
        keep_alive_s: float | None = None,
        keep_prompts: bool = False,
        max_model_len: int = 1_000_000,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.timing, self.fault, self.model, self.key = timing, fault, model, key
        self.text_only, self.template_tokens, self.tokens_a_word = text_only, template_tokens, tokens_a_word
        self.keep_alive_s, self.keep_prompts, self.max_model_len = keep_alive_s, keep_prompts, max_model_len
        self.port, self.tls = port, tls
        self.log: list[Served] = []
        self.running = self.most_running = self.connections = 0
        self.peers: set[asyncio.BaseTransport] = set()
        self._waiting: deque[Callable[[], None]] = deque()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The address to give to a client."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Serve in a thread; returns when the port is open."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self.run(ready.set), daemon=True)
        self._thread.start()
        ready.wait(10.0)
        return self

    def stop(self) -> None:
        """End the thread and everything open."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10.0)
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until the loop is stopped."""
        self._loop = loop = _new_loop()
        server = loop.run_until_complete(
            loop.create_server(lambda: Peer(self, loop), "127.0.0.1", self.port, backlog=4096, ssl=self.tls)
        )
        self.port = server.sockets[0].getsockname()[1]
        ready()
        try:
            loop.run_forever()
        finally:
            server.close()
            # a loop that is closed leaves its sockets open: clients would wait for them
            for peer in list(self.peers):
                peer.close()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    def next_fault(self) -> Fault:
        """What the next request meets."""
        number = next(self._numbers)
        return self.fault(number) if callable(self.fault) else self.fault

    def admit(self, begin: Callable[[], None]) -> None:
        """Begin now where a slot is free, else in turn."""
        if self.timing.slots is None or self.running < self.timing.slots:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            begin()
        else:
            self._waiting.append(begin)

    def release(self) -> None:
        """A request ended: the next in line begins."""
        self.running -= 1
        if self._waiting:
            self.admit(self._waiting.popleft())

    def metrics(self) -> str:
        """A few of vLLM's counters."""
        done = sum(1 for served in self.log if served.ended)
        return (
            f"vllm:num_requests_running {self.running}\nvllm:num_requests_waiting {len(self._waiting)}\n"
            f"vllm:prompt_tokens_total {sum(s.prompt_tokens for s in self.log)}\n"
            f"vllm:generation_tokens_total {sum(s.tokens for s in self.log)}\n"
            f'vllm:request_success_total{{finished_reason="length"}} {done}\n'
        )


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def main(arguments: list[str] | None = None) -> int:
    """`python -m tuner.replay.mock`: serve in this process until interrupted; the URL is the first line."""
    parser = argparse.ArgumentParser(prog="python -m tuner.replay.mock", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="mock")
    parser.add_argument("--ttft", type=float, default=0.02, help="seconds to the first token")
    parser.add_argument("--tpot", type=float, default=0.005, help="seconds between tokens")
    parser.add_argument("--slots", type=int, default=None, help="requests served at a time")
    parser.add_argument("--fault", type=Fault, default=Fault.NONE, choices=list(Fault))
    asked = parser.parse_args(arguments)
    server = MockServer(
        Timing(asked.ttft, asked.tpot, asked.slots), fault=asked.fault, model=asked.model, port=asked.port
    )
    try:
        server.run(lambda: print(server.url, flush=True))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
