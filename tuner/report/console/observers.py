"""Who watches a study on a screen: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from tuner.report.console.live import LiveObserver
from tuner.report.console.plain import PlainObserver
from tuner.study.records import Observer

__all__ = ["LiveObserver", "PlainObserver", "watching"]


@contextmanager
def watching(console: Console, *, verbose: bool = False, quiet: bool = False) -> Iterator[Observer]:
    """The live view on a terminal, plain lines elsewhere or with `verbose`, nothing with `quiet`.

    Drawing ends with the block.
    """
    if quiet:
        yield PlainObserver(Console(quiet=True))
        return
    if not console.is_terminal or verbose:
        yield PlainObserver(console, verbose=verbose)
        return
    live = LiveObserver(console)
    try:
        yield live
    finally:
        live.stop()
