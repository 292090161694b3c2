"""vLLM's V1 scheduler in virtual time, on sums over the running requests instead of the requests themselves.

All decoding requests take one token a step, so a step needs only their number, the sum of their contexts and
how many of them begin a new KV block; a request is touched when it is admitted, prefilled and ended, and one
by one only when blocks run out. Stretches of steps in which nothing can change are advanced in closed form.

The rules are those of vllm/v1/core/sched/scheduler.py and kv_cache_manager.py (0.18 to 0.33); with
asynchronous scheduling a step is scheduled when the one before begins, so that arrivals and ends are seen a
step later (vllm/v1/engine/core.py, step_with_batch_queue).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

from tuner.engines.simulated.blocks import BlockManager
from tuner.engines.simulated.coming import Coming
from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.prefixes import Prefixes
from tuner.engines.simulated.stretch import steps_until
from tuner.engines.simulated.timeline import Observer, StepCost, Timeline
from tuner.traces.causal import Turns

_SHIFT = 22
_MASK = (1 << _SHIFT) - 1
_WAITING, _RUNNING, _ENDING, _GONE = range(4)
_LOOK_EVERY = 32


class Simulation:
    """One replay. `arrival_s` ascending; with `users` arrivals are ignored and every user sends the next
    request as soon as the last has ended. With `turns` arrivals are moved to when a session's turn is due.
    """

    def __init__(
        self,
        limits: Limits,
        cost: StepCost,
        prefixes: Prefixes,
        arrival_s: list[float],
        input_tokens: list[int],
        output_tokens: list[int],
        *,
        users: int | None = None,
        turns: Turns | None = None,
        observer: Observer | None = None,
        noise: Callable[[], float] | None = None,
    ) -> None:
        requests = len(input_tokens)
        self._limits, self._cost, self._observer, self._noise = limits, cost, observer, noise
        self._in, self._out = input_tokens, output_tokens
        self._users, self._turns = users, turns
        self._blocks = BlockManager(limits, prefixes)
        self._chained = any(prefixes.chains) and limits.prefix_caching
        arrivals = [0.0] * min(users, requests) if users is not None else arrival_s
        nan = math.nan
        self.timeline = Timeline(arrivals, [nan] * requests, [nan] * requests)
        self._state = bytearray(requests)
        self._made = [0] * requests
        self._final_step = [-1] * requests
        self._order: list[int] = []
        self._resumed: list[int] = []
        self._begins = [0] * limits.block_size
        """How many decoding requests begin a block in a step, by step modulo block size."""
        self._sums = (0, 0, 0, -1, 0)
        """(decoding requests, the sum of their contexts, requests that ended unnoticed, the request whose
        prompt is partly computed (always the last admitted; -1: none), its computed tokens)."""

    def _preempt_last(self, step: int) -> int:
        """Preempt the last running request, in step `step` before it was scheduled there."""
        order, state = self._order, self._state
        request = order.pop()
        while state[request] == _GONE:
            request = order.pop()
        self.timeline.preemptions += 1
        decodes, context, ending, partial, done = self._sums
        if state[request] == _ENDING:
            self._release(request)
            self._sums = decodes, context, ending - 1, partial, done
            return request
        if request == partial:
            tokens = done
            self._sums = decodes, context, ending, -1, 0
        else:
            final = self._final_step[request]
            length = self._in[request] + self._out[request] - 2
            tokens = length - final + step
            self._made[request] = tokens + 1 - self._in[request]
            self._sums = decodes - 1, context - tokens - 1, ending, partial, done
            self._begins[(final - length) % self._limits.block_size] -= 1
            self._final_step[request] = -1
        state[request] = _WAITING
        self._blocks.preempt(request, tokens)
        self._resumed.append(request)
        return request

    def _release(self, request: int) -> None:
        self._state[request] = _GONE
        self._blocks.release(request, self._in[request] + self._out[request] - 1)

    def _walk(self, step: int) -> None:
        """Blocks have run out: the running requests take theirs one by one, the last ones give way."""
        size, blocks, state, order = self._limits.block_size, self._blocks, self._state, self._order
        finals, made_in, made_out = self._final_step, self._in, self._out
        partial = self._sums[3]
        for request in list(order):
            if state[request] != _RUNNING or request == partial:
                continue
            if (made_in[request] + made_out[request] - 2 - finals[request] + step) % size:
                continue
            while not blocks.free:
                if self._preempt_last(step) == request:
                    return
            blocks.free -= 1
            if blocks.queue is not None:
                blocks.queue.hand_out(1)

    def run(self) -> Timeline:
        """Simulate to the end, or to where the observer stops it."""
        limits, cost, blocks, timeline = self._limits, self._cost, self._blocks, self.timeline
        observer, noise, closed = self._observer, self._noise, self._users is not None
        size, max_batch, max_seqs = limits.block_size, limits.max_num_batched_tokens, limits.max_num_seqs
        lag, chunked, reserve = limits.async_scheduling, limits.chunked_prefill, limits.reserve_full_sequence
        decode_cost, mixed_cost = cost.decode, cost.mixed
        token_s, crowd_s = cost.frontend_token_s, cost.frontend_crowd_s
        inputs, outputs, state = self._in, self._out, self._state
        made, finals, begins = self._made, self._final_step, self._begins
        order, resumed = self._order, self._resumed
        arrival, first, last = timeline.arrival_s, timeline.first_s, timeline.last_s
        requests, known, head = len(inputs), len(arrival), 0
        coming = Coming(self._turns, arrival) if self._turns is not None else None
        next_s = arrival[0] if known else math.inf
        heap = [1 << 62]  # never empty
        ended: list[int] = []
        ended_before: list[int] = []
        now = view = front = running_s = idle_s = 0.0
        step = turns = steps = 0
        # kept in step with the fields that _walk and _preempt_last work on
        decodes = context = ending = partial_done = partial_total = 0
        partial = -1
        lengths = [a + b - 2 for a, b in zip(inputs, outputs, strict=True)]
        chained = self._chained
        rates_of, rates = -1, (0.0, 0.0, 0.0, 0.0)

        while True:
            # what ended is noticed: a step late with asynchronous scheduling
            if ended or ended_before:
                if lag:
                    due, ended_before, ended = ended_before, ended, []
                else:
                    due, ended = ended, []
                for request in due:
                    if state[request] != _ENDING:
                        continue
                    ending -= 1
                    if blocks.queue is None:
                        state[request] = _GONE
                        blocks.free += lengths[request] // size + 1
                    else:
                        self._release(request)

            # running requests first
            preempted = False
            need = begins[step % size]
            if need:
                if need <= blocks.free:
                    blocks.free -= need
                    if blocks.queue is not None:
                        blocks.queue.hand_out(need)
                else:
                    before = timeline.preemptions
                    self._sums = decodes, context, ending, partial, partial_done
                    self._walk(step)
                    decodes, context, ending, partial, partial_done = self._sums
                    preempted = timeline.preemptions > before
            budget = max_batch - decodes
            tokens = pairs = reads = chunks = 0
            prefilled: list[int] = []
            if partial >= 0:
                done = partial_done
                chunk = min(partial_total - done, budget)
                need = -(-(done + chunk) // size) + -done // size
                if need > blocks.free:
                    self._sums = decodes, context, ending, partial, partial_done
                    self._preempt_last(step)
                    decodes, context, ending, partial, partial_done = self._sums
                    preempted = True
                else:
                    blocks.free -= need
                    if blocks.queue is not None:
                        blocks.queue.hand_out(need)
                    budget -= chunk
                    chunks, tokens = 1, chunk
                    pairs = chunk * done + chunk * (chunk + 1) // 2
                    done += chunk
                    reads = done
                    blocks.computed(partial, done)
                    if done == partial_total:
                        prefilled.append(partial)
                        partial = -1
                    else:
                        partial_done = done

            # waiting requests, first come first served, up to the first that does not fit
            waiting = next_s <= view or bool(resumed)
            if waiting and not preempted:
                room = max_seqs - decodes - ending - len(prefilled) - (partial >= 0)
                while budget > 0 and room > 0:
                    if resumed:
                        request = resumed[-1]
                    elif next_s <= view:
                        request = head if coming is None else coming.first
                    else:
                        waiting = False
                        break
                    total = inputs[request] + made[request]
                    if chained or blocks.queue is not None:
                        admitted = blocks.admit(request, total, budget)
                        if admitted is None:
                            break
                        hit, chunk = admitted
                        if hit and not resumed:
                            blocks.hit_tokens += hit
                    else:
                        hit, chunk = 0, total
                        if total > budget:
                            if not chunked:
                                break
                            chunk = budget
                        need = -(-chunk // size)
                        if (-(-total // size) if reserve else need) > blocks.free:
                            break
                        blocks.free -= need
                    if resumed:
                        resumed.pop()
                    else:
                        head += 1
                        next_s = coming.taken() if coming else arrival[head] if head < known else math.inf
                    state[request] = _RUNNING
                    order.append(request)
                    room -= 1
                    budget -= chunk
                    chunks += 1
                    tokens += chunk
                    pairs += chunk * hit + chunk * (chunk + 1) // 2
                    hit += chunk
                    reads += hit
                    if hit == total:
                        prefilled.append(request)
                    else:
                        partial, partial_done, partial_total = request, hit, total

            start = now
            if tokens:
                sampled = decodes + len(prefilled)
                seconds = mixed_cost(decodes, context, tokens, pairs, reads, chunks, sampled)
                if blocks.loaded_tokens:
                    seconds += blocks.loaded_tokens * cost.load_token_s
                    blocks.loaded_tokens = 0
                if noise is not None:
                    seconds *= noise()
                begun, count = now, 1
                now += seconds
                if sampled:
                    front = (front if front > now else now) + sampled * (token_s + crowd_s * sampled)
            elif decodes:
                if decodes != rates_of:
                    rates_of, rates = decodes, decode_cost(decodes)
                base, floor, fixed, slope = rates
                seconds = fixed + slope * context
                flat = seconds < floor
                seconds = base + (floor if flat else seconds)
                while finals[heap[0] & _MASK] != heap[0] >> _SHIFT:
                    heappop(heap)
                count = 1
                if not preempted and noise is None and not (waiting and ended_before):
                    count = (heap[0] >> _SHIFT) - step + 1
                    if count > 1:
                        grow = 0.0 if flat else slope * decodes
                        if flat and slope > 0.0:
                            count = min(count, max(int(((floor - fixed) / slope - context) / decodes), 1))
                        if not waiting and next_s < math.inf:
                            wanted = next_s - now
                            if wanted <= 0.0:
                                count = 1
                            else:
                                count = min(count, steps_until(wanted, seconds, grow, count) + lag)
                        if count > 1:
                            count = self._with_blocks(step, count, decodes)
                if count == 1:
                    if noise is not None:
                        seconds *= noise()
                    begun = now
                    now += seconds
                    front = (front if front > now else now) + decodes * (token_s + crowd_s * decodes)
                else:
                    # the frontend serves step after step; its queue is longest behind the first or the last
                    per_step = decodes * (token_s + crowd_s * decodes)
                    ahead = now + seconds
                    begun = now + (count - 1) * seconds + grow * ((count - 1) * (count - 2) // 2)
                    now += count * seconds + grow * (count * (count - 1) // 2)
                    front = max(max(front, ahead) + count * per_step, now + per_step)
                    step += count - 1
                    context += decodes * (count - 1)
            else:
                # nothing to do: steps in flight end first, then the clock goes on to the next arrival
                if ended_before or ended or view < now:
                    view = now
                    continue
                if next_s == math.inf:
                    break
                idle_s += max(next_s - now, 0.0)
                view = now = max(now, next_s)
                continue

            running_s += (now - start) * (decodes + chunks)
            steps += count

            # ends and first tokens, as the client sees them behind the frontend
            bound = (step + 1) << _SHIFT
            while heap[0] < bound:
                request = heappop(heap) & _MASK
                if finals[request] != step:
                    continue
                finals[request] = -1
                length = lengths[request]
                decodes -= 1
                context -= length + 1
                begins[(step - length) % size] -= 1
                state[request] = _ENDING
                ended.append(request)
                last[request] = front
            context += decodes
            for request in prefilled:
                if not made[request]:
                    first[request] = front
                    if observer is not None:
                        observer.first(request, arrival[request], front)
                made[request] = have = made[request] + 1
                left = outputs[request] - have
                if left:
                    final = step + left
                    finals[request] = final
                    heappush(heap, final << _SHIFT | request)
                    length = lengths[request]
                    begins[(final - length) % size] += 1
                    decodes += 1
                    context += length - left + 2
                else:
                    state[request] = _ENDING
                    ended.append(request)
                    last[request] = front
            if ended:
                ending += len(ended)
                if observer is not None:
                    for request in ended:
                        observer.ended(request, arrival[request], first[request], front)
                if coming is not None:
                    next_s = coming.ended(ended, front)
                if closed:
                    more = min(len(ended), requests - known)
                    arrival.extend([front] * more)
                    known += more
                    if next_s == math.inf and more:
                        next_s = front
            step += 1
            view = begun if lag else now
            turns += 1
            if not turns % _LOOK_EVERY:
                if len(order) > 64 + 4 * (decodes + ending):
                    order[:] = [r for r in order if state[r] in (_RUNNING, _ENDING)]
                if observer is not None and observer.stop(now):
                    timeline.stopped = True
                    break

        if observer is not None and not timeline.stopped:
            timeline.stopped = observer.stop(now)
        timeline.end_s = max(now, front)
        timeline.steps, timeline.busy_s, timeline.running_s = steps, now - idle_s, running_s
        timeline.hit_tokens, timeline.admitted = blocks.hit_tokens, head
        return timeline

    def _with_blocks(self, step: int, count: int, decodes: int) -> int:
        """Take the blocks that `count` decode steps begin after the first, `step`; 1 if too few are free."""
        size, begins, blocks = self._limits.block_size, self._begins, self._blocks
        cycles, rest = divmod(count - 1, size)
        start = (step + 1) % size
        need = cycles * decodes + sum(begins[start : start + rest])
        if start + rest > size:
            need += sum(begins[: start + rest - size])
        if need > blocks.free:
            return 1
        blocks.free -= need
        if blocks.queue is not None:
            blocks.queue.hand_out(need)
        return count
