"""One process's part of a replay: its event loop, its connections, its collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

from tuner.errors import EngineUnavailable
from tuner.loops import loop_factory
from tuner.replay.pool import NoConnection, Pool
from tuner.replay.prompts import Bodies
from tuner.replay.run import Run
from tuner.replay.server import BaseUrl


def send_all(
    base_url: str, run: Run, bodies: Bodies, begin: Callable[[], Awaitable[float]] | None = None
) -> None:
    """Send what the run is to send and fill its columns; `begin` as in `Run.main`.

    Raises:
        EngineUnavailable: not one connection could be opened.
    """
    url = BaseUrl.parse(base_url)
    pool = Pool(url.resolve(), reserve=run.reserve, connect_s=run.options.connect_s)
    collected = gc.isenabled()
    gc.collect()
    gc.disable()  # a full collection beside a large study takes longer than the lag that is allowed
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run.main(pool, url, bodies, begin))
    except NoConnection as error:
        raise EngineUnavailable(f"no connection to {url.shown} ({error})", "is the server up?") from error
    finally:
        if collected:
            gc.enable()
