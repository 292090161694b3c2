"""KV blocks with shared prefixes: look-up, admission, preemption and release of requests in vLLM's way.

Only what shares or may be hit again is kept one by one; everything else is a number of plain blocks. A block
is computed although its content is cached only where it is the last of a prompt that is a whole number of
blocks long; vLLM does not merge the two: the one cached first is hit, and once that is gone the next.
"""

from __future__ import annotations

from collections import deque

from tuner.engines.simulated.freelist import FreeQueue
from tuner.engines.simulated.hostcache import HostCache
from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.prefixes import Prefixes


class BlockManager:
    """Free KV blocks and the prefix cache over them.

    `free` counts the blocks that can be handed out, cached or not. `queue` is None as long as nothing in it
    could be hit: then only the count matters. `loaded_tokens` came from the host's cache since somebody last
    set it back. Run numbers: those of `Prefixes`, then one for each request's own blocks, which only itself
    can hit, after it was preempted, then one for each request's copy of its prompt's last block.
    """

    __slots__ = (
        "_block_size",
        "_caching",
        "_chains",
        "_copies",
        "_first_copy",
        "_held",
        "_host",
        "_limits",
        "_nothing",
        "_refs",
        "_run_blocks",
        "_runs",
        "free",
        "hit_tokens",
        "loaded_tokens",
        "queue",
    )

    def __init__(self, limits: Limits, prefixes: Prefixes) -> None:
        self._limits = limits
        self._block_size = limits.block_size
        self._caching = limits.prefix_caching
        self._chains = prefixes.chains
        self._run_blocks = prefixes.blocks
        self._runs = len(prefixes.blocks)
        self._first_copy = self._runs + len(prefixes.chains)
        self._refs = [0] * (self._first_copy + len(prefixes.chains))
        self._nothing: list[int] = []  # replaced at admission, before anything is put in
        self._held = [self._nothing] * len(prefixes.chains)
        self._copies: dict[int, deque[int]] = {}
        self.free = limits.usable_blocks
        self.hit_tokens = self.loaded_tokens = 0
        self.queue: FreeQueue | None = None
        self._host: HostCache | None = None
        if self._caching and self._runs:
            self._start_queue()
            self._host = HostCache(limits.host_blocks) if limits.host_blocks else None

    def _start_queue(self) -> FreeQueue:
        self.queue = FreeQueue(self.free, len(self._refs))
        return self.queue

    def take(self, count: int) -> None:
        """Hand out so many blocks; the caller knows that they are free."""
        self.free -= count
        if self.queue is not None:
            self.queue.hand_out(count)

    def admit(self, request: int, total: int, budget: int) -> tuple[int, int] | None:
        """Admit a request of `total` tokens into a step with `budget` tokens left.

        Returns (tokens hit in the prefix cache, tokens to compute in this step), None where it does not fit.
        """
        size, queue = self._block_size, self.queue
        hit_blocks = hit_free = own_blocks = loaded = 0
        runs: list[int] = []
        own = self._runs + request
        if queue is not None:
            queue.settle()
            hit_blocks, hit_free, runs, whole = self._look_up(queue, request, (total - 1) // size)
            if whole and queue.resident[own]:
                own_blocks = queue.resident[own]
                hit_blocks += own_blocks
                hit_free += own_blocks
            elif self._host is not None and not whole:
                loaded = self._from_host(self._host, request, hit_blocks, (total - 1) // size)
        hit = (hit_blocks + loaded) * size
        chunk = total - hit
        if chunk > budget:
            if not self._limits.chunked_prefill:
                return None
            chunk = budget
        reach = total if self._limits.reserve_full_sequence else hit + chunk
        if -(-reach // size) - hit_blocks + hit_free > self.free:
            return None
        if queue is not None:
            refs = self._refs
            for run in runs:
                if not refs[run]:
                    self.free -= queue.take(run)
                refs[run] += 1
            self._held[request] = runs
            if own_blocks:
                self.free -= queue.take(own)
        new = -(-(hit + chunk) // size) - hit_blocks
        self.free -= new
        if queue is not None:
            queue.hand_out(new)
            self.computed(request, hit + chunk)
            self.loaded_tokens += loaded * size
        return hit, chunk

    def _look_up(self, queue: FreeQueue, request: int, limit: int) -> tuple[int, int, list[int], bool]:
        """(blocks hit, how many of them are free, runs hit, whether the whole chain was hit)."""
        blocks = free = 0
        runs: list[int] = []
        resident, refs = queue.resident, self._refs
        lengths, copies = self._run_blocks, self._copies
        for run in self._chains[request]:
            length = lengths[run]
            if copies and run in copies:
                run = self._cached_first(queue, run)
            there = resident[run]
            if not there or blocks + length > limit:
                return blocks, free, runs, False
            if not refs[run]:
                free += there
            blocks += there
            runs.append(run)
            if there < length:
                return blocks, free, runs, False
        return blocks, free, runs, True

    def _cached_first(self, queue: FreeQueue, run: int) -> int:
        """The run itself or, where it is gone, its oldest copy that is left."""
        copies = self._copies[run]
        if queue.resident[run]:
            return run
        while copies and not queue.resident[copies[0]]:
            copies.popleft()
        if copies:
            return copies[0]
        del self._copies[run]
        return run

    def _from_host(self, host: HostCache, request: int, there: int, limit: int) -> int:
        """Blocks that the host's cache adds to the `there` first ones."""
        end = 0
        for run in self._chains[request]:
            length = self._run_blocks[run]
            if end + length > there and (run not in host or end + length > limit):
                break
            end += length
        return max(end - there, 0)

    def computed(self, request: int, tokens: int) -> None:
        """The first `tokens` of a request are computed in this step: its full blocks can be hit from now."""
        chain = self._chains[request]
        queue = self.queue
        if not chain or queue is None:
            return
        room = tokens // self._block_size
        resident, lengths, host = queue.resident, self._run_blocks, self._host
        held = self._held[request]
        known = len(held)
        for place, run in enumerate(chain):
            if room <= 0:
                return
            length = lengths[run]
            if place >= known:
                held.append(self._begin(queue, request, run))
            there = held[place]
            if resident[there] < length:
                resident[there] = length if length < room else room
            if host is not None and room >= length:
                host.put(run, length)
            room -= length

    def _begin(self, queue: FreeQueue, request: int, run: int) -> int:
        """The run that a request begins to compute: a copy where the same content is cached."""
        there = run
        if queue.resident[run] or run in self._copies:
            # the very blocks that this step hands out may be the last copy
            queue.settle()
            if queue.resident[run] or (run in self._copies and self._cached_first(queue, run) != run):
                there = self._first_copy + request
                self._copies.setdefault(run, deque()).append(there)
        self._refs[there] += 1
        return there

    def release(self, request: int, tokens: int) -> None:
        """An ended request of `tokens` computed tokens gives back its blocks."""
        total = -(-tokens // self._block_size)
        queue = self.queue
        if queue is None:
            self.free += total
            return
        plain, resident = total, queue.resident
        for run in self._held[request]:
            plain -= resident[run]
        self.free += plain
        queue.give_back(plain)
        if self._host is not None:
            self._host.put(self._runs + request, tokens // self._block_size - total + plain)
        self._leave(queue, request)

    def preempt(self, request: int, tokens: int) -> None:
        """A preempted request of `tokens` computed tokens gives back its blocks; full ones stay cached."""
        size = self._block_size
        total = -(-tokens // size)
        if not self._caching:
            self.free += total
            return
        queue = self.queue or self._start_queue()
        full = tokens // size
        shared = sum(queue.resident[run] for run in self._held[request])
        own = self._runs + request
        queue.resident[own] = full - shared
        self.free += total - shared
        queue.give_back(total - full)
        queue.give_back_run(own)
        self._leave(queue, request)

    def _leave(self, queue: FreeQueue, request: int) -> None:
        refs = self._refs
        for run in reversed(self._held[request]):
            refs[run] -= 1
            if not refs[run]:
                self.free += queue.resident[run]
                queue.give_back_run(run)
        self._held[request] = self._nothing
