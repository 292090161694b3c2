"""The replay over HTTP: one clock, absolute deadlines, and nothing that waits for an answer."""

from __future__ import annotations

import math
import time

import numpy as np

from tuner.replay.columns import Columns
from tuner.replay.dialect import measure_text, settle
from tuner.replay.metrics import difference, parse_counters
from tuner.replay.options import ClientOptions, Endpoint
from tuner.replay.plan import plan_clients, shards
from tuner.replay.pool import clock
from tuner.replay.preflight import ensure_capacity
from tuner.replay.prompts import Bodies, TextScale, lengths_of
from tuner.replay.records import Replay, Status, Workload
from tuner.replay.run import Progress, Run
from tuner.replay.send import send_all
from tuner.replay.server import read_metrics
from tuner.replay.shard import Job
from tuner.replay.shards import Shards
from tuner.replay.stop import Curtailment, OverWatch

_DEFAULTS = ClientOptions()
_COUNT_S = 1.0


def replay_http(
    base_url: str,
    model: str,
    workload: Workload,
    *,
    stop: Curtailment | None = None,
    progress: Progress | None = None,
    options: ClientOptions = _DEFAULTS,
    seed: int = 0,
) -> Replay:
    """Send a workload to an OpenAI-compatible server and record what comes back.

    Open loop: every request goes out at its time, whatever is still unanswered; a load that is too much for
    one process is sent by several (`ClientOptions.processes`), and the record is the same. Closed loop
    (`workload.users`): every user sends the next request when the last has ended. `stop` ends the replay as
    soon as its verdict is certain. `seed` decides the prompts; another seed shares no prefix. What `progress`
    raises ends the replay and is raised here.

    Raises:
        BadRequest: the URL is wrong or the server refuses every kind of prompt.
        EngineUnavailable: nothing listens there, or this machine has too few files or ports for the load.
    """
    trace = workload.trace
    columns = Columns(workload)
    if not len(trace):
        return columns.replay(workload, options, stop)
    processes = plan_clients(workload, options.processes).processes
    at_once = workload.users or math.ceil(4 * min(trace.rate_rps, 1e6))  # four seconds of arrivals
    ensure_capacity(min(len(trace), at_once), processes)
    if trace.bodies is None or options.ignore_eos:
        options = settle(base_url, model, options)
    chat: TextScale | None = None
    if trace.bodies is None and options.endpoint is Endpoint.CHAT:
        chat = measure_text(base_url, model)
    fixed = workload.users is None and not workload.causal
    scheduled = np.asarray(columns.scheduled) if fixed else None
    watch = OverWatch(stop, len(trace), scheduled) if stop else None
    before = parse_counters(read_metrics(base_url)) if options.counters else {}
    if processes == 1:
        run = Run(workload, options, watch=watch, progress=progress)
        bodies = Bodies(trace, model, options, seed=seed, chat=chat)
        begun = clock()
        send_all(base_url, run, bodies)
        engine_s, columns = clock() - begun, run.columns
    else:
        common = (base_url, model, options, seed, chat, watch)
        with Shards([Job.of(workload, part, *common) for part in shards(workload, processes)]) as several:
            several.wait_ready()
            begun = clock()
            several.replay(columns, watch, progress)
            engine_s = clock() - begun
    counters = _counted_since(before, base_url, columns) if before else {}
    counters["client_processes"] = float(processes)
    if progress is not None and not columns.stopped:
        progress(len(trace), len(trace))
    lengths = lengths_of(trace, chat)
    return columns.replay(workload, options, stop, engine_s=engine_s, lengths=lengths, counters=counters)


def _counted_since(before: dict[str, float], base_url: str, columns: Columns) -> dict[str, float]:
    """The server's counters over the replay. The last answers may be counted a moment after they are read."""
    ended = columns.status.count(int(Status.OK))
    deadline = clock() + _COUNT_S
    while True:
        counters = difference(before, parse_counters(read_metrics(base_url)))
        if counters.get("server_requests", ended) >= ended or columns.stopped or clock() > deadline:
            return counters
        time.sleep(0.05)
