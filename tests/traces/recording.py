"""A recorder in a thread, in front of a server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from tuner.traces.recorder import Recorder, RowFiles, RowMaker
from tuner.traces.recorder.blocks import PrefixBlocks
from tuner.traces.recorder.upstream import Upstream


@contextlib.contextmanager
def recording(
    upstream: str,
    out: Path,
    *,
    block_tokens: int = 16,
    salt: str | None = None,
    rotate_bytes: int | None = None,
    keep_text: bool = False,
) -> Iterator[Recorder]:
    """A recorder that runs inside the block; what it wrote is there after it."""
    files = RowFiles(out, {"block_size": block_tokens, "prefix_reuse": "recorded"}, rotate_bytes)
    recorder = Recorder(
        Upstream(upstream), RowMaker(PrefixBlocks(block_tokens, salt), files, keep_text=keep_text)
    )
    loop = asyncio.new_event_loop()
    ready, enough = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with recorder:
            ready.set()
            await enough.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(10.0)
    try:
        yield recorder
    finally:
        loop.call_soon_threadsafe(enough.set)
        thread.join(10.0)
        loop.close()
        files.close()
