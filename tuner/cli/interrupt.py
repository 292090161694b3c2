"""Ctrl-C: once, and the job stops cleanly; twice, and it ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tuner.errors import Exit

GOES_ON = "kimi-tune: interrupted; the same command goes on where it stopped"


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into KeyboardInterrupt and the second into the process's end.

    After the second, what still runs is ended by those who watch this process: a server's watcher, a slot
    whose pipe closes. The study is handed back by its next start.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            os.write(2, f"{GOES_ON}\n".encode())  # what print holds may be locked where we came in
            os._exit(Exit.INTERRUPTED)
        print("kimi-tune: stopping the servers; once more ends at once", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
