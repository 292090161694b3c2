"""vLLM's V1 scheduler in virtual time, on sums over the running requests instead of the requests themselves.

All decoding requests take one token a step, so a step needs only their number and the sum of their contexts;
a request is touched when it is admitted, prefilled and ended, and one by one only when blocks run out.
Stretches of steps in which nothing can change are advanced in closed form. While all that runs fits to its
end, nobody counts the blocks that the decodes begin: they are caught up with when that ends.

The rules are those of vllm/v1/core/sched/scheduler.py and kv_cache_manager.py (0.18 to 0.33); with
asynchronous scheduling a step is scheduled when the one before begins, so that arrivals and ends are seen a
step later (vllm/v1/engine/core.py, step_with_batch_queue).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

from tuner.engines.simulated.blocks import BlockManager
from tuner.engines.simulated.calm import FOREVER, LOOK_EVERY, MASK, SHIFT, Calm, Moment
from tuner.engines.simulated.coming import Coming
from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.prefixes import Prefixes
from tuner.engines.simulated.running import ENDING, GONE, RUNNING, Running
from tuner.engines.simulated.stretch import steps_until
from tuner.engines.simulated.timeline import Observer, StepCost, Timeline
from tuner.traces.causal import Turns


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
        arrivals = [0.0] * min(users, requests) if users is not None else arrival_s
        self.timeline = Timeline(arrivals, [math.nan] * requests, [math.nan] * requests)
        self._running = Running(limits.block_size, self._blocks, self.timeline, input_tokens, output_tokens)

    def run(self) -> Timeline:
        """Simulate to the end, or to where the observer stops it."""
        limits, cost, blocks, timeline = self._limits, self._cost, self._blocks, self.timeline
        observer, noise, closed = self._observer, self._noise, self._users is not None
        size, max_batch, max_seqs = limits.block_size, limits.max_num_batched_tokens, limits.max_num_seqs
        lag, chunked, reserve = limits.async_scheduling, limits.chunked_prefill, limits.reserve_full_sequence
        decode_cost, mixed_cost = cost.decode, cost.mixed
        token_s, crowd_s = cost.frontend_token_s, cost.frontend_crowd_s
        inputs, outputs, running = self._in, self._out, self._running
        state, made, finals, begins = running.state, running.made, running.final_step, running.begins
        order, resumed, lengths = running.order, running.resumed, running.lengths
        at_end, usable = running.blocks_at_end, limits.usable_blocks
        arrival, first, last = timeline.arrival_s, timeline.first_s, timeline.last_s
        requests, known, head = len(inputs), len(arrival), 0
        coming = Coming(self._turns, arrival) if self._turns is not None else None
        next_s = arrival[0] if known else math.inf
        heap = [FOREVER]
        due: list[int] = []  # ended, and noticed when the next step is scheduled
        unseen: list[int] = []  # ended in the step in flight
        now = view = front = running_s = idle_s = 0.0
        step = turns = steps = 0
        decodes = context = ending = partial_done = partial_total = 0
        partial = -1
        rates_of: dict[int, tuple[float, float, float, float]] = {}
        # roomy: what runs fits to its end (in `reserved` blocks) and no cached block is handed out (at most
        # `spent` blocks were since the start); `covered` of what decodes hold are taken from the free blocks
        roomy, reserved, spent, covered = True, 0, 0, 0
        calm = None
        if noise is None and coming is None and blocks.queue is None:
            calm = Calm(
                limits, cost, timeline, running, inputs, outputs, heap, closed=closed, observer=observer
            )

        while True:
            preempted = waiting = False
            tokens = chunks = 0
            prefilled: list[int] = []
            if not roomy or next_s <= view or partial >= 0 or resumed or not decodes:
                for request in due:
                    if state[request] != ENDING:
                        continue
                    ending -= 1
                    reserved -= at_end[request]
                    state[request] = GONE
                    if blocks.queue is None:
                        blocks.free += at_end[request]
                    else:
                        blocks.release(request, lengths[request] + 1)
                due.clear()
                if roomy and partial < 0 and not resumed and calm is not None and calm.worth_it(turns):
                    # some may have given way although they had ended
                    unseen = [request for request in unseen if state[request] == ENDING]
                    reserved -= sum(at_end[request] for request in unseen)
                    moment = Moment(
                        now, view, front, next_s, running_s, idle_s, step, turns, steps,
                        decodes, context, reserved, head, known, unseen,
                    )  # fmt: skip
                    calm.advance(moment)
                    now, view, front, next_s = moment.now, moment.view, moment.front, moment.next_s
                    running_s, idle_s, step = moment.running_s, moment.idle_s, moment.step
                    turns, steps = moment.turns, moment.steps
                    decodes, context, unseen = moment.decodes, moment.context, moment.unseen
                    head, known, ending = moment.head, moment.known, len(unseen)
                    unnoticed = sum(at_end[request] for request in unseen)
                    reserved, covered = moment.reserved + unnoticed, running.held(step, decodes, context)
                    blocks.free = usable - covered - unnoticed
                    if timeline.stopped:
                        break

                # running requests first
                if not roomy:
                    if blocks.queue is None and reserved <= usable - usable // 8:
                        roomy, covered = True, running.held(step, decodes, context)
                    elif need := begins[step % size]:
                        if need <= blocks.free:
                            blocks.take(need)
                        else:
                            before = timeline.preemptions
                            sums = decodes, context, ending, partial, partial_done, reserved
                            sums = running.walk(step, sums)
                            decodes, context, ending, partial, partial_done, reserved = sums
                            preempted = timeline.preemptions > before
                budget = max_batch - decodes
                pairs = reads = 0
                if partial >= 0:
                    done = partial_done
                    chunk = min(partial_total - done, budget)
                    need = -(-(done + chunk) // size) + -done // size
                    if need > blocks.free:
                        sums = decodes, context, ending, partial, partial_done, reserved
                        _, sums = running.preempt_last(step, sums)
                        decodes, context, ending, partial, partial_done, reserved = sums
                        preempted = True
                    else:
                        blocks.take(need)
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
                        ends_with = at_end[request]
                        if roomy and (
                            reserved + ends_with > usable
                            or (blocks.queue is not None and spent + ends_with > usable)
                        ):
                            roomy = False
                            blocks.take(running.held(step + 1, decodes, context + decodes) - covered)
                        if blocks.queue is not None:
                            admitted = blocks.admit(request, total, budget)
                            if admitted is None:
                                break
                            hit, chunk = admitted
                            if hit and not resumed:
                                blocks.hit_tokens += hit
                            spent += ends_with if blocks.loaded_tokens else ends_with - hit // size
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
                        reserved += ends_with
                        if resumed:
                            resumed.pop()
                        else:
                            head += 1
                            if coming is not None:
                                next_s = coming.taken()
                            else:
                                next_s = arrival[head] if head < known else math.inf
                        state[request] = RUNNING
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
                rates = rates_of.get(decodes)
                if rates is None:
                    rates = rates_of[decodes] = decode_cost(decodes)
                base, floor, fixed, slope = rates
                seconds = fixed + slope * context
                flat = seconds < floor
                seconds = base + (floor if flat else seconds)
                top = heap[0]
                while finals[top & MASK] != top >> SHIFT:
                    heappop(heap)
                    top = heap[0]
                count = 1
                if not preempted and noise is None and not (waiting and unseen):
                    count = (top >> SHIFT) - step + 1
                    if count > 1:
                        grow = 0.0 if flat else slope * decodes
                        if flat and slope > 0.0:
                            count = min(count, max(int(((floor - fixed) / slope - context) / decodes), 1))
                        if not waiting and next_s < math.inf:
                            wanted = next_s - now
                            if wanted <= 0.0:
                                count = 1
                            elif count * seconds + grow * (count * (count - 1) // 2) >= wanted:
                                count = min(count, steps_until(wanted, seconds, grow, count) + lag)
                        if not roomy and count > 1:
                            count = running.take_stretch(step, count, decodes)
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
                    served = (front if front > ahead else ahead) + count * per_step
                    front = now + per_step
                    if served > front:
                        front = served
                    step += count - 1
                    context += decodes * (count - 1)
            else:
                # nothing to do: steps in flight end first, then the clock goes on to the next arrival
                if due or unseen or view < now:
                    due += unseen
                    unseen = []
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
            ended: list[int] = []
            bound = (step + 1) << SHIFT
            while heap[0] < bound:
                request = heappop(heap) & MASK
                if finals[request] != step:
                    continue
                finals[request] = -1  # one preempted may be there twice
                length = lengths[request]
                decodes -= 1
                context -= length + 1
                covered -= at_end[request]
                begins[(step - length) % size] -= 1
                state[request] = ENDING
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
                    heappush(heap, final << SHIFT | request)
                    length = lengths[request]
                    begins[(final - length) % size] += 1
                    decodes += 1
                    context += length - left + 2
                    covered += (length - left) // size + 1
                else:
                    state[request] = ENDING
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
            if lag:
                due += unseen
                unseen = ended
                view = begun
            else:
                due += ended
                view = now
            step += 1
            turns += 1
            if not turns % LOOK_EVERY:
                if len(order) > 64 + 4 * (decodes + ending):
                    running.tidy()
                if observer is not None and observer.stop(now):
                    timeline.stopped = True
                    break

        if observer is not None and not timeline.stopped:
            timeline.stopped = observer.stop(now)
        timeline.end_s = max(now, front)
        timeline.steps, timeline.busy_s, timeline.running_s = steps, now - idle_s, running_s
        timeline.hit_tokens, timeline.admitted = blocks.hit_tokens, head
        return timeline
