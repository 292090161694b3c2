"""One request under way: what its connection read and when, and what that says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from tuner.replay.answer import Answer, error_text
from tuner.replay.http1 import ResponseReader
from tuner.replay.pool import Connection
from tuner.replay.records import Status

if TYPE_CHECKING:
    from tuner.replay.run import Run

_STALE_WITHIN_S = 2.0  # one round trip, and then this process has to get a CPU


class Call:
    """A request of a replay. What was read is stamped and kept, and parsed a batch at a time."""

    __slots__ = ("answer", "index", "lazy", "pieces", "retried", "run", "text")

    def __init__(self, run: Run, index: int) -> None:
        self.run, self.index = run, index
        self.answer = Answer()
        self.text: list[bytes] = []
        self.pieces: list[tuple[float, bytes]] = []
        self.lazy = False
        self.retried = False

    def body(self, reader: ResponseReader, data: bytes, now: float) -> None:
        """Body bytes, read at `now`."""
        if reader.status == 200 and reader.content_type.startswith(b"text/event-stream"):
            answer = self.answer
            before = answer.chunks
            answer.feed(data, now)
            if not before and answer.chunks:
                self.run.began(self.index, now)
        else:
            self.text.append(data)

    def parsed(self, reader: ResponseReader) -> None:
        """What was read so far is parsed: may the rest wait for its batch?"""
        # a limit on TTFT is watched while the replay runs, so the first token is looked for in every read
        self.lazy = reader.streams and (self.answer.chunks > 0 or not self.run.watches_first)

    def complete(self, reader: ResponseReader, now: float) -> None:
        """The response is complete."""
        answer, status = self.answer, reader.status
        if status == 200:
            if self.text:
                answer.whole(b"".join(self.text), now)
            answer.close(now)
            self.run.answered(self.index, answer)
        else:
            kind = Status.REJECTED if 400 <= status < 500 and status != 429 else Status.HTTP_ERROR
            self.run.failed(self.index, kind, f"HTTP {status}: {_said(self.text)}", answer)

    def broken(self, connection: Connection, reason: str, now: float) -> None:
        """The connection ended, or the response is malformed, before the response was complete."""
        at_once = now - connection.written < _STALE_WITHIN_S and not connection.reader.began
        if connection.pooled and at_once and not self.retried:
            # the server closed an idle connection while the request was on its way: it never saw it; a fault
            # of its own would show again on the fresh connection
            self.retried = True
            self.run.connect(self)
            return
        # an error event or a complete answer may lie in front of a cut
        kind = Status.STREAM_ERROR if self.answer.error else Status.CONNECTION
        self.run.failed(self.index, kind, self.answer.error or reason, self.answer)


def _said(text: list[bytes]) -> str:
    raw = b"".join(text)
    try:
        return error_text(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return error_text(raw[:400].decode("utf-8", "replace"))
