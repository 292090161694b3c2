"""How many client processes a load needs, from what a request and a streamed token cost one of them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.replay.records import Workload

REQUEST_S = 300e-6
"""CPU time of a request: connection, head, body, the end of its answer. Taken with room from
tests/benchmarks/replay.py, as is the next."""
CHUNK_S = 35e-6
"""CPU time of a streamed token that comes in a read of its own."""
SHARE = 0.6
"""How busy a client process may be planned to be: above it the lag grows."""
_TOKEN_WINDOW_S = 30.0
_SHORTEST_S = 5.0
MOST_PROCESSES = 32


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """`processes` send the load; `busy` is how many CPUs they are expected to use together at its peak.

    `short` says that the machine has too few CPUs for it: the lag will tell whether the replay is valid.
    """

    processes: int
    busy: float
    short: bool

    def __str__(self) -> str:
        text = (
            f"{self.processes} client processes: the load takes about {self.busy:.1f} CPUs to send and read"
        )
        return text + ", more than this machine has to spare" if self.short else text


def plan_clients(workload: Workload, wanted: int | None = None) -> ClientPlan:
    """The plan for a workload; `wanted` processes where that is given.

    A closed loop has one process: its users take the requests in order.
    """
    busy = _busy(workload)
    if workload.users is not None:
        return ClientPlan(1, busy, busy > 1.0)
    sessions = len(np.unique(workload.trace.session))
    if wanted is not None:
        return ClientPlan(max(1, min(wanted, sessions, MOST_PROCESSES)), busy, False)
    needed = max(1, int(np.ceil(busy / SHARE)))
    # one CPU is left to the server's front end and to everything else
    spare = max(1, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1
    processes = max(1, min(needed, spare, sessions, MOST_PROCESSES))
    return ClientPlan(processes, busy, processes < needed and busy / processes > 1.0)


def shards(workload: Workload, processes: int) -> list[NDArray[np.int64]]:
    """The requests of each process, ascending: whole sessions, dealt so that all have as much to do."""
    trace = workload.trace
    cost = REQUEST_S + CHUNK_S * trace.output_tokens.astype(np.float64)
    _, session = np.unique(trace.session, return_inverse=True)
    costs = np.bincount(session, weights=cost)
    load = np.zeros(processes)
    owner = np.zeros(len(costs), np.int64)
    for one in np.argsort(-costs, kind="stable").tolist():
        owner[one] = least = int(load.argmin())
        load[least] += costs[one]
    return [np.flatnonzero(owner[session] == process) for process in range(processes)]


def _busy(workload: Workload) -> float:
    """CPUs that the busiest arrivals take; of a closed loop nothing is known beforehand.

    Requests by seconds, tokens by longer windows: no server streams the answers of a burst in a second.
    """
    trace = workload.trace
    if workload.users is not None or not len(trace):
        return 0.0
    tokens_s = (
        min(_TOKEN_WINDOW_S, max(trace.duration_s, _SHORTEST_S)) if trace.duration_s else _TOKEN_WINDOW_S
    )
    arrival_s = trace.arrival_s - trace.arrival_s[0]
    requests = np.bincount(arrival_s.astype(np.int64)).max()
    tokens = (
        np.bincount((arrival_s / tokens_s).astype(np.int64), weights=trace.output_tokens).max() / tokens_s
    )
    return float(REQUEST_S * requests + CHUNK_S * tokens)
