"""vLLM's queue of free KV blocks, in runs: cached blocks stay hittable until their turn to be handed out."""

from __future__ import annotations

from collections import deque


class FreeQueue:
    """Free blocks in the order in which they will be handed out: [count, run] entries, run -1 for plain ones.

    `resident[run]` is how many blocks of a run are cached, from its front; a run's last block is the first to
    go. Blocks handed out are counted as a debt and taken off the front when somebody looks.
    """

    __slots__ = ("_debt", "_entries", "_entry_of", "resident")

    def __init__(self, free: int, runs: int) -> None:
        self.resident = [0] * runs
        self._entries: deque[list[int]] = deque([[free, -1]])
        self._entry_of: list[list[int] | None] = [None] * runs
        self._debt = 0

    def hand_out(self, count: int) -> None:
        """`count` blocks leave from the front; the caller knows that there are so many."""
        self._debt += count

    def settle(self) -> None:
        """Evict what has been handed out since the last time."""
        debt, entries = self._debt, self._entries
        while debt:
            entry = entries[0]
            count, run = entry
            taken = count if count <= debt else debt
            debt -= taken
            if run >= 0:
                self.resident[run] -= taken
            if taken == count:
                entries.popleft()
                if run >= 0:
                    self._entry_of[run] = None
            else:
                entry[0] = count - taken
        self._debt = 0

    def give_back(self, count: int) -> None:
        """`count` blocks without cached content go to the end."""
        last = self._entries[-1] if self._entries else None
        if last is not None and last[1] < 0:
            last[0] += count
        elif count:
            self._entries.append([count, -1])

    def give_back_run(self, run: int) -> None:
        """The cached blocks of a run that nobody refers to any more go to the end, its last block first."""
        count = self.resident[run]
        if count:
            entry = [count, run]
            self._entry_of[run] = entry
            self._entries.append(entry)

    def take(self, run: int) -> int:
        """A run is hit while free: its blocks leave the queue wherever they are. Call settle() before."""
        entry = self._entry_of[run]
        if entry is None:
            return 0
        self._entry_of[run] = None
        count = entry[0]
        entry[0], entry[1] = 0, -1
        return count
