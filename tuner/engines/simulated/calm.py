"""The simulation's short cut through calm stretches: nobody has to wait, and blocks are aplenty.

While no prefix is shared, what runs fits to its end and what comes is admitted whole in its first step, the
number of decodes, the sum of their contexts and the steps of their ends are all that counts. A step at which
any of that ceases is left to the scheduler, untouched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.running import Running
from tuner.engines.simulated.stretch import steps_until
from tuner.engines.simulated.timeline import Observer, StepCost, Timeline

SHIFT = 22
"""Ends are ordered by step << SHIFT | request."""
MASK = (1 << SHIFT) - 1
FOREVER = 1 << 62
"""Later than every end: keeps the heap of them from being empty."""
LOOK_EVERY = 32
"""Turns between two looks at what needs no look every turn."""
_NOBODY: list[int] = []


@dataclass(slots=True)
class Moment:
    """Where a simulation stands as it schedules a step; the names are those of `Simulation.run`.

    `reserved` is without the `unseen`: requests that have ended and have not been noticed.
    """

    now: float
    view: float
    front: float
    next_s: float
    running_s: float
    idle_s: float
    step: int
    turns: int
    steps: int
    decodes: int
    context: int
    reserved: int
    head: int
    known: int
    unseen: list[int]


class Calm:
    """Advances a simulation through calm stretches."""

    def __init__(
        self,
        limits: Limits,
        cost: StepCost,
        timeline: Timeline,
        running: Running,
        input_tokens: list[int],
        output_tokens: list[int],
        heap: list[int],
        *,
        closed: bool,
        observer: Observer | None,
    ) -> None:
        self._limits, self._cost, self._timeline, self._running = limits, cost, timeline, running
        self._in, self._out, self._heap = input_tokens, output_tokens, heap
        self._closed, self._observer = closed, observer
        self._pairs = [n * (n + 1) // 2 for n in input_tokens]
        self._most_blocks = max(running.blocks_at_end, default=0)
        self._not_before = 0
        self._rates: dict[int, tuple[float, float, float, float]] = {}

    def worth_it(self, turns: int) -> bool:
        """Whether to try again: not at once where the last stretch was short."""
        return turns >= self._not_before

    def advance(self, moment: Moment) -> None:
        """Go on to where calm ends. Nothing is partly computed, preempted or due to be noticed."""
        began, head, heap = moment.turns, moment.head, self._heap
        if self._timeline.preemptions:
            finals = self._running.final_step
            valid = {entry for entry in heap if finals[entry & MASK] == entry >> SHIFT}
            heap[:] = sorted(valid | {FOREVER})
        self._go(moment)
        if moment.turns > began:
            ends = [(e & MASK, e >> SHIFT) for e in heap if e < FOREVER]
            self._running.restore(range(head, moment.head), ends, moment.unseen)
        self._not_before = moment.turns + (LOOK_EVERY if moment.turns < began + LOOK_EVERY else 1)

    def _go(self, moment: Moment) -> None:
        limits, timeline, observer, closed = self._limits, self._timeline, self._observer, self._closed
        max_batch, max_seqs, usable = limits.max_num_batched_tokens, limits.max_num_seqs, limits.usable_blocks
        lag, decode_cost, mixed_cost = limits.async_scheduling, self._cost.decode, self._cost.mixed
        token_s, crowd_s = self._cost.frontend_token_s, self._cost.frontend_crowd_s
        inputs, outputs, pairs_of, heap = self._in, self._out, self._pairs, self._heap
        lengths, at_end, most_blocks = self._running.lengths, self._running.blocks_at_end, self._most_blocks
        arrival, first, last = timeline.arrival_s, timeline.first_s, timeline.last_s
        rates_of, requests = self._rates, len(inputs)
        now, view, front, next_s = moment.now, moment.view, moment.front, moment.next_s
        running_s, step, turns, steps = moment.running_s, moment.step, moment.turns, moment.steps
        decodes, context, reserved = moment.decodes, moment.context, moment.reserved
        head, known, unseen = moment.head, moment.known, moment.unseen
        come: Sequence[int]

        while True:
            if next_s <= view:
                end = head + 1
                if end < known and arrival[end] <= view:
                    while end < known and arrival[end] <= view:
                        end += 1
                    come = range(head, end)
                    tokens, pairs = sum(inputs[head:end]), sum(pairs_of[head:end])
                    reserved += sum(at_end[head:end])
                else:
                    come = (head,)
                    tokens, pairs = inputs[head], pairs_of[head]
                    reserved += at_end[head]
                sampled = decodes + end - head
                if (
                    tokens > max_batch - decodes
                    or sampled + len(unseen) > max_seqs
                    or reserved + len(unseen) * most_blocks > usable
                ):
                    reserved -= sum(at_end[head:end])
                    break
                begun = now
                now += mixed_cost(decodes, context, tokens, pairs, tokens, end - head, sampled)
                running_s += (now - begun) * sampled
                front = (front if front > now else now) + sampled * (token_s + crowd_s * sampled)
                head = end
                next_s = arrival[head] if head < known else math.inf
                steps += 1
            elif decodes:
                come = ()
                rates = rates_of.get(decodes)
                if rates is None:
                    rates = rates_of[decodes] = decode_cost(decodes)
                base, floor, fixed, slope = rates
                seconds = fixed + slope * context
                count = (heap[0] >> SHIFT) - step + 1
                grow = slope * decodes
                if seconds < floor:
                    if slope > 0.0:
                        most = int(((floor - fixed) / slope - context) / decodes)
                        if most < count:
                            count = most if most > 1 else 1
                    seconds, grow = floor, 0.0
                seconds += base
                if count > 1:
                    wanted = next_s - now
                    lasts = count * seconds + grow * (count * (count - 1) // 2)
                    if lasts >= wanted:
                        if wanted <= 0.0:
                            count = 1
                        else:
                            until = steps_until(wanted, seconds, grow, count) + lag
                            if until < count:
                                count = until
                                lasts = count * seconds + grow * (count * (count - 1) // 2)
                begun = now
                per_step = decodes * (token_s + crowd_s * decodes)
                if count == 1:
                    now += seconds
                    front = (front if front > now else now) + per_step
                    running_s += (now - begun) * decodes
                else:
                    # as in the scheduler
                    served = now + seconds
                    served = (front if front > served else served) + count * per_step
                    now += lasts
                    running_s += (now - begun) * decodes
                    front = now + per_step
                    if served > front:
                        front = served
                    begun += (count - 1) * seconds + grow * ((count - 1) * (count - 2) // 2)
                    step += count - 1
                    context += decodes * (count - 1)
                steps += count
            elif unseen or view < now:
                view, unseen = now, _NOBODY
                continue
            elif next_s == math.inf:
                break
            else:
                moment.idle_s += max(next_s - now, 0.0)
                view = now = max(now, next_s)
                continue

            ended = _NOBODY
            bound = (step + 1) << SHIFT
            if heap[0] < bound:
                ended = []
                while heap[0] < bound:
                    request = heappop(heap) & MASK
                    ended.append(request)
                    last[request] = front
                    context -= lengths[request] + 1
                    reserved -= at_end[request]
                decodes -= len(ended)
            context += decodes
            for request in come:
                first[request] = front
                if observer is not None:
                    observer.first(request, arrival[request], front)
                left = outputs[request] - 1
                if left:
                    heappush(heap, (step + left) << SHIFT | request)
                    decodes += 1
                    context += inputs[request] + 1
                else:
                    ended = [*ended, request]
                    last[request] = front
                    reserved -= at_end[request]
            if ended:
                if observer is not None:
                    for request in ended:
                        observer.ended(request, arrival[request], first[request], front)
                if closed:
                    more = min(len(ended), requests - known)
                    arrival.extend([front] * more)
                    known += more
                    if next_s == math.inf and more:
                        next_s = front
            if lag:
                unseen, view = ended, begun
            else:
                view = now
            step += 1
            turns += 1
            if observer is not None and not turns % LOOK_EVERY and observer.stop(now):
                timeline.stopped = True
                break

        moment.now, moment.view, moment.front, moment.next_s = now, view, front, next_s
        moment.running_s, moment.step, moment.turns, moment.steps = running_s, step, turns, steps
        moment.decodes, moment.context, moment.reserved = decodes, context, reserved
        moment.head, moment.known, moment.unseen = head, known, list(unseen)
