"""The replay over HTTP: one process, one clock, absolute deadlines, and nothing that waits for an answer."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable

import numpy as np

from tuner.errors import EngineUnavailable
from tuner.replay.columns import Columns
from tuner.replay.metrics import difference, parse_counters
from tuner.replay.options import ClientOptions, Endpoint
from tuner.replay.pool import NoConnection, Pool, clock
from tuner.replay.preflight import ensure_capacity
from tuner.replay.prompts import Bodies, TextScale
from tuner.replay.records import Replay, Workload
from tuner.replay.run import Progress, Run
from tuner.replay.server import BaseUrl, measure_text, probe_endpoint, read_metrics
from tuner.replay.stop import Curtailment, OverWatch

_DEFAULTS = ClientOptions()


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

    Open loop: every request goes out at its time, whatever is still unanswered. Closed loop
    (`workload.users`): every user sends the next request when the last has ended. `stop` ends the replay as
    soon as its verdict is certain. `seed` decides the prompts; another seed shares no prefix. What `progress`
    raises ends the replay and is raised here.

    Raises:
        BadRequest: the URL is wrong or the server refuses every kind of prompt.
        EngineUnavailable: nothing listens there, or this machine has too few files or ports for the load.
    """
    trace = workload.trace
    if not len(trace):
        return Columns(workload).replay(workload, options, stop)
    at_once = workload.users or math.ceil(4 * min(trace.rate_rps, 1e6))  # four seconds of arrivals
    ensure_capacity(min(len(trace), at_once))
    url = BaseUrl.parse(base_url)
    chat: TextScale | None = None
    if trace.bodies is None:
        endpoint = options.endpoint
        if endpoint is Endpoint.AUTO:
            endpoint = probe_endpoint(base_url, model)
        if endpoint is Endpoint.CHAT:
            chat = measure_text(base_url, model)
    bodies = Bodies(trace, model, options, seed=seed, chat=chat)
    scheduled = np.asarray(trace.arrival_s - trace.arrival_s[0]) if workload.users is None else None
    watch = OverWatch(stop, len(trace), scheduled) if stop else None
    run = Run(workload, options, watch=watch, progress=progress)
    pool = Pool(url.resolve(), reserve=_reserve(workload), connect_s=options.connect_s)
    before = parse_counters(read_metrics(base_url)) if options.counters else {}
    collected = gc.isenabled()
    gc.collect()
    gc.disable()  # a full collection beside a large study takes longer than the lag that is allowed
    begun = clock()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run.main(pool, url, bodies))
    except NoConnection as error:
        raise EngineUnavailable(f"no connection to {url.shown} ({error})", "is the server up?") from error
    finally:
        if collected:
            gc.enable()
    engine_s = clock() - begun
    counters = difference(before, parse_counters(read_metrics(base_url))) if before else {}
    if progress is not None and not run.columns.stopped:
        progress(run.ended, run.n)
    return run.columns.replay(
        workload, options, stop, engine_s=engine_s, lengths=bodies.lengths, counters=counters
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _reserve(workload: Workload) -> int:
    if workload.users is not None:
        return 1
    return int(min(64, max(4, 0.1 * workload.trace.rate_rps)))
