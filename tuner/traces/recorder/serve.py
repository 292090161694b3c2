"""Recording until someone says that it is enough."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from pathlib import Path

from tuner.errors import BadRequest
from tuner.loops import loop_factory
from tuner.traces.recorder.blocks import PrefixBlocks
from tuner.traces.recorder.files import RowFiles
from tuner.traces.recorder.proxy import Recorder
from tuner.traces.recorder.rows import RowMaker, Tally
from tuner.traces.recorder.upstream import Upstream


def record(
    upstream: str,
    out: Path,
    *,
    port: int = 0,
    block_tokens: int = 64,
    salt: str | None = None,
    rotate_bytes: int | None = None,
    keep_text: bool = False,
    listening: Callable[[Recorder, RowFiles], None] = lambda recorder, files: None,
) -> tuple[Tally, RowFiles]:
    """Record what passes through 127.0.0.1:`port` to `upstream`, until SIGINT or SIGTERM.

    Raises:
        BadRequest: a wrong URL or block size, a file that is there already, a port that is taken.
    """
    behind, blocks = Upstream(upstream), PrefixBlocks(block_tokens, salt)
    files = RowFiles(out, {"block_size": block_tokens, "prefix_reuse": "recorded"}, rotate_bytes)
    rows = RowMaker(blocks, files, keep_text=keep_text)
    recorder = Recorder(behind, rows, port=port)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_until_told(recorder, lambda: listening(recorder, files)))
    except OSError as error:
        raise BadRequest(
            f"--port {port}: cannot listen there ({error.strerror or error})", "choose another"
        ) from None
    finally:
        files.close()
        if not rows.tally.recorded:
            out.unlink(missing_ok=True)
    return rows.tally, files


async def _until_told(recorder: Recorder, listening: Callable[[], None]) -> None:
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, enough.set)
    async with recorder:
        # what was imported is looked through no more: a full collection would hold up every stream
        gc.collect()
        gc.freeze()
        listening()
        await enough.wait()
