"""The running requests of a simulation, one by one: looked at only where KV blocks run out or are counted."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.engines.simulated.blocks import BlockManager
from tuner.engines.simulated.timeline import Timeline

WAITING, RUNNING, ENDING, GONE = range(4)

Sums = tuple[int, int, int, int, int, int]
"""(decoding requests, the sum of their contexts, requests that ended unnoticed, the request whose prompt is
partly computed (always the last admitted; -1: none), its computed tokens, the blocks that all running
requests hold at their ends)."""


class Running:
    """Requests in the order of their admission, and what each holds.

    `blocks_at_end[i]` is what request i holds when it ends, `lengths[i]` two tokens less than its prompt and
    answer, `begins[p]` how many decoding requests begin a block in steps that are p modulo its size.
    """

    __slots__ = (
        "_block_size",
        "_blocks",
        "_outputs",
        "_timeline",
        "begins",
        "blocks_at_end",
        "final_step",
        "lengths",
        "made",
        "order",
        "resumed",
        "state",
    )

    def __init__(
        self,
        block_size: int,
        blocks: BlockManager,
        timeline: Timeline,
        input_tokens: list[int],
        output_tokens: list[int],
    ) -> None:
        self._block_size, self._blocks, self._timeline = block_size, blocks, timeline
        self._outputs = output_tokens
        requests = len(input_tokens)
        self.lengths = [a + b - 2 for a, b in zip(input_tokens, output_tokens, strict=True)]
        self.blocks_at_end = [length // block_size + 1 for length in self.lengths]
        self.state = bytearray(requests)
        self.made = [0] * requests
        self.final_step = [-1] * requests
        self.order: list[int] = []
        self.resumed: list[int] = []
        self.begins = [0] * block_size

    def tidy(self) -> None:
        """Forget in the order who is gone."""
        state = self.state
        self.order[:] = [r for r in self.order if state[r] in (RUNNING, ENDING)]

    def restore(self, admitted: range, ends: Sequence[tuple[int, int]], unseen: Sequence[int]) -> None:
        """Make up for what was not kept in a calm stretch.

        `admitted` came in it, `ends` are the decoding requests with their last steps, and `unseen` have ended
        without notice so far: all others that ran are gone.
        """
        state, begins = self.state, self.begins
        for request in (*self.order, *admitted):
            state[request] = GONE
        self.made[admitted.start : admitted.stop] = [1] * len(admitted)
        begins[:] = [0] * self._block_size
        for request, final in ends:
            state[request] = RUNNING
            self.final_step[request] = final
            begins[(final - self.lengths[request]) % self._block_size] += 1
        for request in unseen:
            state[request] = ENDING
        self.order += admitted
        self.tidy()

    def preempt_last(self, step: int, sums: Sums) -> tuple[int, Sums]:
        """Preempt the last running request, in step `step` before it was scheduled there; the sums after."""
        order, state = self.order, self.state
        request = order.pop()
        while state[request] == GONE:
            request = order.pop()
        self._timeline.preemptions += 1
        decodes, context, ending, partial, done, reserved = sums
        reserved -= self.blocks_at_end[request]
        if state[request] == ENDING:
            self.release(request)
            return request, (decodes, context, ending - 1, partial, done, reserved)
        if request == partial:
            tokens = done
            sums = decodes, context, ending, -1, 0, reserved
        else:
            final, length = self.final_step[request], self.lengths[request]
            tokens = length - final + step
            self.made[request] = self._outputs[request] - 1 - final + step
            self.begins[(final - length) % self._block_size] -= 1
            self.final_step[request] = -1
            sums = decodes - 1, context - tokens - 1, ending, partial, done, reserved
        state[request] = WAITING
        self._blocks.preempt(request, tokens)
        self.resumed.append(request)
        return request, sums

    def release(self, request: int) -> None:
        """An ended request gives back its blocks."""
        self.state[request] = GONE
        self._blocks.release(request, self.lengths[request] + 1)

    def walk(self, step: int, sums: Sums) -> Sums:
        """Blocks have run out: the running requests take theirs one by one, the last ones give way."""
        size, blocks, state = self._block_size, self._blocks, self.state
        finals, lengths, partial = self.final_step, self.lengths, sums[3]
        for request in list(self.order):
            if state[request] != RUNNING or request == partial:
                continue
            if (lengths[request] - finals[request] + step) % size:
                continue
            while not blocks.free:
                given, sums = self.preempt_last(step, sums)
                if given == request:
                    return sums
            blocks.take(1)
        return sums

    def held(self, step: int, decodes: int, context: int) -> int:
        """Blocks that the decoding requests hold as step `step` begins, where `context` is their sum."""
        size = self._block_size
        blocks = context - decodes
        for phase, count in enumerate(self.begins):
            rest = (step - phase) % size
            if rest:
                blocks += count * (size - rest)
        return blocks // size

    def take_stretch(self, step: int, count: int, decodes: int) -> int:
        """Take the blocks that `count` decode steps begin after the first, `step`; 1 if too few are free."""
        size, begins, blocks = self._block_size, self.begins, self._blocks
        cycles, rest = divmod(count - 1, size)
        start = (step + 1) % size
        need = cycles * decodes + sum(begins[start : start + rest])
        if start + rest > size:
            need += sum(begins[: start + rest - size])
        if need > blocks.free:
            return 1
        blocks.take(need)
        return count
