"""How often the search finds what a server carries: `python tests/benchmarks/capacity.py [REQUESTS ...]`.

Servers are queues of slots and the simulated engine; every seed draws other traffic, another start, and other
loads. The truth is the highest load whose P99 over 100,000 requests is within the guarded limit, to 0.5%. Of
Poisson traffic they are one replay; of the trace that ships, which swings over 20 minutes, five replays of
20,000, a whole trace's length each, with copies shifted otherwise.

Found is within 5% of it, by at most 6 replays from a start log-uniform within a factor 2, by at most 9 within
a factor 8. The table that it printed last is in capacity.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))

from queues import SlotServer, chat_lengths, poisson_trace, shipped  # noqa: E402

from tuner.engines.simulated import SimulatedEngine  # noqa: E402
from tuner.hardware import find_gpu  # noqa: E402
from tuner.measure import GUARD, STEP, LoadTest, Send, nearest_rank  # noqa: E402
from tuner.models import find_model  # noqa: E402
from tuner.replay import Workload  # noqa: E402
from tuner.space import LaunchConfig  # noqa: E402
from tuner.spec import Slo  # noqa: E402
from tuner.traces import Trace  # noqa: E402

SEEDS = 20
STARTS = ((2.0, 6), (8.0, 9))
"""Within which factor of the truth a search starts, and how many replays it may take."""
TRUTH_REQUESTS = 100_000
_FINE = 1.005
_OTHER_SEED = 50_000  # of what the truth is drawn from
_PLACES = {
    "H100, 8B": ("H100-80G", "meta-llama/Llama-3.1-8B-Instruct"),
    "A100, kimi-k2.6-awq": ("A100-80G", "kimi-k2.6-awq"),
}


@dataclass(frozen=True)
class Case:
    """A server under one kind of traffic. `traffic(seed, rps, n)` is a trace of n requests at about a rate,
    or of a rate and length of its own; `low` and `high` are loads that surely pass and fail; the truth is
    taken over so many `streams`.
    """

    name: str
    send: Send
    traffic: Callable[[int, float, int], Trace]
    slo: Slo
    low: float
    high: float
    streams: int = 1

    def test(self, seed: int, requests: int, near_rps: float) -> LoadTest:
        """Loads of the traffic of one seed."""
        trace = self.traffic(seed, near_rps, max(4000, 2 * requests))
        return LoadTest(trace, self.slo, requests=requests, seed=seed)

    @property
    def limit_s(self) -> float:
        """The guarded limit on the P99 of E2E."""
        return GUARD * self.slo.largest_s()

    def truth_rps(self) -> float:
        """The highest load whose P99 over 100,000 requests is within the limit."""
        seeds = range(_OTHER_SEED, _OTHER_SEED + self.streams)
        near_rps = (self.low * self.high) ** 0.5
        tests = [self.test(seed, TRUTH_REQUESTS // self.streams, near_rps) for seed in seeds]
        low, high = self.low, self.high
        while high / low > _FINE:
            middle = (low * high) ** 0.5
            replays = [self.send(Workload(test.loads.at(middle)), None) for test in tests]
            if nearest_rank(np.concatenate([one.e2e_s() for one in replays]), 0.99) <= self.limit_s:
                low = middle
            else:
                high = middle
        return low


@dataclass(frozen=True)
class Finding:
    """What a search found from one start."""

    rps: float
    replays: int

    def good(self, truth_rps: float, most: int) -> bool:
        """Within 5% of a truth, by so many replays."""
        return truth_rps / STEP <= self.rps * (1 + 1e-6) <= truth_rps * STEP and self.replays <= most


def search(case: Case, seed: int, factor: float, requests: int, truth_rps: float) -> Finding:
    """One search, from a start within a factor of the truth."""
    start = truth_rps * factor ** np.random.default_rng(seed).uniform(-1, 1)
    found = case.test(seed, requests, 0.9 * truth_rps).capacity(case.send, start)
    return Finding(found.rps, len(found.probes))


def cases() -> Iterator[Case]:
    """The slot servers, and two places of the simulated engine under three kinds of traffic."""
    for slots, slo_s in ((128, 30.0), (64, 20.0), (256, 14.0)):
        server = SlotServer(slots)
        full = server.saturation_rps()
        yield Case(
            f"{slots} slots, Poisson",
            server.send,
            _slot_traffic,
            Slo(e2e_p99_s=slo_s),
            0.1 * full,
            1.2 * full,
        )
    for place, (gpu, model) in _PLACES.items():
        send = (
            SimulatedEngine(find_gpu(gpu), find_model(model), "0.21.0").launch(LaunchConfig(), Path()).replay
        )
        for slo_s in (15.0, 30.0):
            yield Case(f"{place}, Poisson", send, _chat_lengths, Slo(e2e_p99_s=slo_s), 0.5, 40.0)
        yield Case(f"{place}, shipped", send, _shipped, Slo(e2e_p99_s=30.0), 0.5, 40.0, streams=5)


def _slot_traffic(seed: int, rps: float, n: int) -> Trace:
    return poisson_trace(rps, n, seed)


def _chat_lengths(seed: int, rps: float, n: int) -> Trace:
    return chat_lengths(poisson_trace(rps, n, seed), seed)


def _shipped(seed: int, rps: float, n: int) -> Trace:
    """One trace: seeds draw other copies of its sessions, shifted otherwise."""
    return shipped()


def row(case: Case, requests: int, truth_rps: float) -> str:
    """A row of the table."""
    cells = [case.name, f"{case.slo.largest_s():.0f} s", f"{truth_rps:.2f}", f"{requests:,}"]
    for factor, most in STARTS:
        found = [search(case, seed, factor, requests, truth_rps) for seed in range(SEEDS)]
        replays = [one.replays for one in found]
        ratios = np.array([one.rps for one in found]) / truth_rps
        cells += [
            f"{sum(one.good(truth_rps, most) for one in found)}",
            f"{np.mean(replays):.1f}, {max(replays)}",
            f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})",
        ]
    return "| " + " | ".join(cells) + " |"


def main(sizes: list[int]) -> None:
    """Print the table, a row a server and number of requests."""
    heads = ["server, traffic", "SLO", "truth, req/s", "requests a replay"]
    for factor, most in STARTS:
        heads += [
            f"x{factor:.0f}: of {SEEDS} within 5% by {most} replays",
            "replays: mean, most",
            "found / truth: median (range)",
        ]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for case in cases():
        truth_rps = case.truth_rps()
        for requests in sizes:
            print(row(case, requests, truth_rps), flush=True)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [1000, 4000, 8000])
