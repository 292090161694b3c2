"""What was sent and what came back: one record a request, in columns, the same from a server and a
simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tuner.traces.trace import F64, I32, Trace


class Status(IntEnum):
    """How a request ended. Everything but OK counts as an infinite latency."""

    OK = 0
    UNFINISHED = 1
    """Still running (or never sent) when the replay was stopped."""
    REJECTED = 2
    """The server refused it: HTTP 4xx, such as a prompt over max-model-len."""
    HTTP_ERROR = 3
    """HTTP 429 or 5xx."""
    STREAM_ERROR = 4
    """An error event inside a stream that began with 200."""
    WRONG_LENGTH = 5
    """The stream ended well with another number of tokens than asked for, or without a finish reason."""
    CONNECTION = 6
    """Refused, reset or cut off."""
    STALLED = 7
    """No byte for longer than the client waits."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a replay offers: a trace whose arrivals are already scaled, sent open loop as it is, or closed
    loop.

    With `causal` a turn of a session is sent when the trace wants it, but not before the answer to the turn
    before it has ended and its user has thought as long as in the trace; it is due then, and its latency
    counts from there.

    Closed loop (`users` set): so many users take the requests in order, each the next one as soon as its last
    has ended; arrival times are ignored.
    """

    trace: Trace
    users: int | None = None
    causal: bool = False

    @property
    def offered_rps(self) -> float:
        """Requests a second that the arrivals offer; 0 in a closed loop, where the server sets the pace."""
        return 0.0 if self.users is not None else self.trace.rate_rps


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """One replay's records, n rows in the order of the workload; times in seconds since the replay began.

    `scheduled_s` is when the trace wanted the request sent, `sent_s` when it was, `first_s` and `last_s` when
    the first and the last token arrived (NaN where none did). `tokens` is what the server says it generated,
    `first_tokens` how many of them came with the first chunk. `engine_s` is how long the engine was held, in
    wall or virtual time. `stopped` says that a verdict was certain before the end. `counters` are the
    server's own figures over the replay (`preemptions`, `prefix_hit_tokens`, `prefix_query_tokens`, …).
    """

    scheduled_s: F64
    sent_s: F64
    first_s: F64
    last_s: F64
    input_tokens: I32
    output_tokens: I32
    tokens: I32
    first_tokens: I32
    status: NDArray[np.int8]
    offered_rps: float
    engine_s: float
    users: int | None = None
    stopped: bool = False
    simulated: bool = False
    tokens_estimated: bool = False
    invalid_reason: str | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scheduled_s)

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which requests were answered in full."""
        return np.asarray(self.status == Status.OK)

    def e2e_s(self) -> F64:
        """End-to-end latency from the scheduled time; infinity for a failure."""
        return np.where(self.ok, self.last_s - self.scheduled_s, np.inf)

    def ttft_s(self) -> F64:
        """Time to first token from the scheduled time; infinity for a failure."""
        return np.where(self.ok, self.first_s - self.scheduled_s, np.inf)

    def tpot_s(self) -> F64:
        """Time per output token after the first chunk: 0 for answers of one chunk, infinity for a failure."""
        later = np.maximum(self.tokens - self.first_tokens, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(later > 0, (self.last_s - self.first_s) / np.maximum(later, 1), 0.0)
        return np.where(self.ok, value, np.inf)

    def metric_s(self, name: str) -> F64:
        """A column by the SLO's name for it: `e2e`, `ttft` or `tpot`."""
        return {"e2e": self.e2e_s, "ttft": self.ttft_s, "tpot": self.tpot_s}[name]()

    def lag_s(self) -> F64:
        """How late each request was sent, for those that were."""
        lag = self.sent_s - self.scheduled_s
        return lag[~np.isnan(lag)]
