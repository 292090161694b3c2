"""vLLM's V1 scheduling, plainly: request by request, block by block, step by step.

The truth that the fast scheduler is held against. Blocks are numbered objects in one free queue; every full
block has a name made of its content, and a cache maps names to blocks. Like vLLM's it does not merge blocks
of the same content: the one cached first is hit, and once that is gone the next.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.timeline import StepCost


@dataclass(eq=False)
class Block:
    number: int
    name: tuple | None = None
    users: int = 0


class Pool:
    def __init__(self, count: int, caching: bool) -> None:
        self.caching = caching
        self.free: OrderedDict[int, Block] = OrderedDict((i, Block(i)) for i in range(count))
        self.cache: dict[tuple, dict[int, Block]] = {}

    def new(self) -> Block:
        _, block = self.free.popitem(last=False)
        if block.name is not None:
            same = self.cache[block.name]
            del same[block.number]
            if not same:
                del self.cache[block.name]
            block.name = None
        block.users = 1
        return block

    def touch(self, block: Block) -> None:
        if block.users == 0:
            del self.free[block.number]
        block.users += 1

    def give_back(self, blocks: list[Block]) -> None:
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                self.free[block.number] = block

    def remember(self, block: Block, name: tuple) -> None:
        if self.caching and block.name is None:
            block.name = name
            self.cache.setdefault(name, {})[block.number] = block


@dataclass(eq=False)
class Req:
    index: int
    arrival: float
    prompt: int
    answer: int
    names: list[tuple]
    made: int = 0
    computed: int = 0
    blocks: list[Block] = field(default_factory=list)
    filling: bool = False
    ended: bool = False
    first: float = math.nan
    last: float = math.nan

    @property
    def total(self) -> int:
        return self.prompt + self.made


def block_names(
    index: int, prompt: int, answer: int, ids: list[int], trace_block: int, size: int
) -> list[tuple]:
    """A name for every full block that a request can ever have: equal names mean equal content."""
    names = []
    for place in range((prompt + answer) // size):
        end = (place + 1) * size
        if end > prompt or not ids:
            names.append(("own", index, place))
            continue
        which = (end - 1) // trace_block
        short = min((which + 1) * trace_block, prompt)
        # the content of a cut trace block is only known to equal that of one cut at the same vLLM block
        cut = short // size - which * trace_block // size
        names.append((ids[which], place, cut))
    return names


def simulate(
    limits: Limits,
    cost: StepCost,
    arrival_s: list[float],
    input_tokens: list[int],
    output_tokens: list[int],
    *,
    names: list[list[tuple]] | None = None,
    users: int | None = None,
) -> tuple[list[float], list[float], int]:
    """First and last token times by request, and how many preemptions there were."""
    size = limits.block_size
    pool = Pool(limits.usable_blocks, limits.prefix_caching)
    count = len(input_tokens)
    requests = []
    for i in range(count):
        own = names[i] if names else block_names(i, input_tokens[i], output_tokens[i], [], 0, size)
        requests.append(Req(i, math.nan, input_tokens[i], output_tokens[i], own))
    to_come: deque[Req] = deque()
    later = deque(requests)
    if users is None:
        for request, at in zip(requests, arrival_s, strict=True):
            request.arrival = at
        to_come, later = later, deque()
    else:
        for _ in range(min(users, count)):
            request = later.popleft()
            request.arrival = 0.0
            to_come.append(request)
    waiting: deque[Req] = deque()
    running: list[Req] = []
    in_flight: deque[list[Req]] = deque()  # the requests that ended in a step whose output is not yet seen
    preemptions = 0
    now = begun = front = 0.0
    flying = False

    while True:
        view = begun if limits.async_scheduling and flying else now
        keep = 1 if limits.async_scheduling and flying else 0
        while len(in_flight) > keep:
            for request in in_flight.popleft():
                if request in running:
                    running.remove(request)
                    pool.give_back(request.blocks)
                    request.blocks = []
        while to_come and to_come[0].arrival <= view:
            waiting.append(to_come.popleft())

        budget = limits.max_num_batched_tokens
        scheduled: list[tuple[Req, int, int]] = []
        preempted = False
        place = 0
        while place < len(running) and budget > 0:
            request = running[place]
            if request.ended:
                place += 1
                continue
            chunk = min(request.total - request.computed, budget)
            needed = -(-(request.computed + chunk) // size) - len(request.blocks)
            gave_way = False
            while needed > len(pool.free):
                victim = running.pop()
                preemptions += 1
                preempted = True
                pool.give_back(victim.blocks)
                victim.blocks = []
                if not victim.ended:
                    victim.computed = 0
                    waiting.appendleft(victim)
                if victim is request:
                    gave_way = True
                    break
            if gave_way:
                break
            grow(pool, request, chunk, size)
            scheduled.append((request, request.computed, chunk))
            budget -= chunk
            place += 1

        while not preempted and waiting and budget > 0 and len(running) < limits.max_num_seqs:
            request = waiting[0]
            hits: list[Block] = []
            if limits.prefix_caching:
                for name in request.names[: (request.total - 1) // size]:
                    if name not in pool.cache:
                        break
                    hits.append(next(iter(pool.cache[name].values())))
            hit = len(hits) * size
            chunk = request.total - hit
            if chunk > budget:
                if not limits.chunked_prefill:
                    break
                chunk = budget
            reach = request.total if limits.reserve_full_sequence else hit + chunk
            needed = -(-reach // size) - len(hits) + sum(block.users == 0 for block in hits)
            if needed > len(pool.free):
                break
            waiting.popleft()
            running.append(request)
            for block in hits:
                pool.touch(block)
            request.blocks, request.computed, request.filling = hits, hit, True
            grow(pool, request, chunk, size)
            scheduled.append((request, hit, chunk))
            budget -= chunk

        if not scheduled:
            if in_flight or flying:
                flying = False
                continue
            if not to_come:
                break
            now = max(now, to_come[0].arrival)
            continue

        decodes = context = tokens = pairs = reads = chunks = sampled = 0
        for request, before, chunk in scheduled:
            if not request.filling:
                decodes += 1
                context += before + 1
            else:
                chunks += 1
                tokens += chunk
                pairs += sum(before + j for j in range(1, chunk + 1))
                reads += before + chunk
            sampled += before + chunk == request.total
        if tokens:
            seconds = cost.mixed(decodes, context, tokens, pairs, reads, chunks, sampled)
        else:
            base, floor, fixed, slope = cost.decode(decodes)
            seconds = base + max(floor, fixed + slope * context)
        begun, flying = now, True
        now += seconds
        if sampled:
            front = max(front, now) + sampled * (cost.frontend_token_s + cost.frontend_crowd_s * sampled)
        over = []
        for request, before, chunk in scheduled:
            request.computed = before + chunk
            if request.computed < request.total:
                continue
            request.filling = False
            request.made += 1
            if request.made == 1:
                request.first = front
            if request.made == request.answer:
                request.last = front
                request.ended = True
                over.append(request)
                if later:
                    following = later.popleft()
                    following.arrival = front
                    to_come.append(following)
        in_flight.append(over)
    return [r.first for r in requests], [r.last for r in requests], preemptions


def grow(pool: Pool, request: Req, chunk: int, size: int) -> None:
    """Give a request the blocks of its next `chunk` tokens and cache those that become full."""
    reach = request.computed + chunk
    while len(request.blocks) < -(-reach // size):
        request.blocks.append(pool.new())
    for place in range(request.computed // size, reach // size):
        pool.remember(request.blocks[place], request.names[place])
