"""The host's KV cache behind the GPU's (`--kv-offloading-size`): least recently used, by runs of blocks.

Every full block that a request computes is copied there; a run that the GPU has evicted comes back over the
host link instead of being computed again. The copies out run beside the steps and cost nothing here; the
copies in are waited for.
"""

from __future__ import annotations

from collections import OrderedDict


class HostCache:
    """Runs of blocks by number, the least recently used leave first."""

    def __init__(self, blocks: int) -> None:
        self._room = blocks
        self._runs: OrderedDict[int, int] = OrderedDict()

    def __contains__(self, run: int) -> bool:
        return run in self._runs

    def put(self, run: int, blocks: int) -> None:
        """Store a run, or mark it as used."""
        if run in self._runs:
            self._runs.move_to_end(run)
            return
        self._runs[run] = blocks
        self._room -= blocks
        while self._room < 0:
            self._room += self._runs.popitem(last=False)[1]
