"""KV blocks with shared prefixes: look-up, admission, preemption and release of requests in vLLM's way.

Only what shares or may be hit again is kept one by one; everything else is a number of plain blocks. Where a
block is computed whose content is cached already (the last block of a prompt that is a whole number of blocks
long), the copy is not cached.
"""

from __future__ import annotations

from tuner.engines.simulated.freelist import FreeQueue
from tuner.engines.simulated.hostcache import HostCache
from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.prefixes import Prefixes


class BlockManager:
    """Free KV blocks and the prefix cache over them.

    `free` counts the blocks that can be handed out, cached or not. `queue` is None as long as nothing in it
    could be hit: then only the count matters. `loaded_tokens` came from the host's cache since somebody last
    set it back. Run numbers: those of `Prefixes`, then one for each request's
    own blocks, which only itself can hit, after it was preempted.
    """

    __slots__ = (
        "_block_size",
        "_caching",
        "_chains",
        "_copied",
        "_held",
        "_host",
        "_limits",
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
        self._refs = [0] * self._runs
        self._held = [0] * len(prefixes.chains)
        self._copied = bytearray(len(prefixes.chains))
        self.free = limits.usable_blocks
        self.hit_tokens = self.loaded_tokens = 0
        self.queue: FreeQueue | None = None
        self._host: HostCache | None = None
        if self._caching and self._runs:
            self._start_queue()
            self._host = HostCache(limits.host_blocks) if limits.host_blocks else None

    def _start_queue(self) -> FreeQueue:
        self.queue = FreeQueue(self.free, self._runs + len(self._chains))
        return self.queue

    def admit(self, request: int, total: int, budget: int) -> tuple[int, int] | None:
        """Admit a request of `total` tokens into a step with `budget` tokens left.

        Returns (tokens hit in the prefix cache, tokens to compute in this step), None where it does not fit.
        """
        size, queue = self._block_size, self.queue
        hit_blocks = hit_free = runs = own_blocks = loaded = 0
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
            chain = self._chains[request]
            for run in chain[:runs]:
                if not self._refs[run]:
                    self.free -= queue.take(run)
                self._refs[run] += 1
            self._held[request] = runs
            if own_blocks:
                self.free -= queue.take(own)
            elif queue.resident[own]:
                queue.forget(own)
        new = -(-(hit + chunk) // size) - hit_blocks
        self.free -= new
        if queue is not None:
            queue.hand_out(new)
            self.computed(request, hit + chunk)
            self.loaded_tokens += loaded * size
        return hit, chunk

    def _look_up(self, queue: FreeQueue, request: int, limit: int) -> tuple[int, int, int, bool]:
        """(blocks hit, how many of them are free, runs hit, whether the whole chain was hit)."""
        blocks = free = runs = 0
        resident, refs = queue.resident, self._refs
        chain = self._chains[request]
        for run in chain:
            there, length = resident[run], self._run_blocks[run]
            if not there or blocks + length > limit:
                return blocks, free, runs, False
            if not refs[run]:
                free += there
            blocks += there
            runs += 1
            if there < length:
                return blocks, free, runs, False
        return blocks, free, runs, True

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
        full, base = tokens // self._block_size, 0
        resident = queue.resident
        for place, run in enumerate(chain):
            room = full - base
            if room <= 0:
                return
            length = self._run_blocks[run]
            if place >= self._held[request]:
                if resident[run]:
                    # the very blocks that this step hands out may be the last copy
                    queue.settle()
                if resident[run]:
                    self._copied[request] = 1
                    return
                self._refs[run] += 1
                self._held[request] = place + 1
            if resident[run] < length:
                resident[run] = min(length, room)
            if self._host is not None and room >= length:
                self._host.put(run, length)
            base += length

    def release(self, request: int, tokens: int) -> None:
        """An ended request of `tokens` computed tokens gives back its blocks."""
        total = -(-tokens // self._block_size)
        queue = self.queue
        if queue is None:
            self.free += total
            return
        held = self._chains[request][: self._held[request]]
        plain = total - sum(self._run_blocks[run] for run in held)
        self.free += plain
        queue.give_back(plain)
        if self._host is not None:
            self._host.put(self._runs + request, tokens // self._block_size - total + plain)
        self._leave(queue, request, held)

    def preempt(self, request: int, tokens: int) -> None:
        """A preempted request of `tokens` computed tokens gives back its blocks; full ones stay cached."""
        size = self._block_size
        total = -(-tokens // size)
        if not self._caching:
            self.free += total
            return
        queue = self.queue or self._start_queue()
        full = tokens // size
        held = self._chains[request][: self._held[request]]
        shared = sum(queue.resident[run] for run in held)
        copied = 1 if self._copied[request] and full > shared else 0
        own = self._runs + request
        queue.resident[own] = max(full - shared - copied, 0)
        self.free += total - shared
        queue.give_back(total - full)
        queue.give_back_run(own)
        queue.give_back(copied)
        self._leave(queue, request, held)

    def _leave(self, queue: FreeQueue, request: int, held: tuple[int, ...]) -> None:
        for run in reversed(held):
            self._refs[run] -= 1
            if not self._refs[run]:
                self.free += queue.resident[run]
                queue.give_back_run(run)
        self._held[request] = 0
        self._copied[request] = 0
