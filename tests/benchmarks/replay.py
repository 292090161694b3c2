"""How well the client keeps pace: `python tests/benchmarks/replay.py [--rates 100,200,400] [--seconds 10]`.

Against a mock server in a process of its own: requests and chunks a second, lag beside a bare asyncio sleeper
that ran with the same deadlines, the error of the TTFT's P99 against the server's own log, and CPU seconds.
The sleeper has a process of its own and runs at the same time, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tuner.measure import nearest_rank  # noqa: E402
from tuner.replay import ClientOptions, Endpoint, Workload, replay_http  # noqa: E402
from tuner.traces.trace import Trace, TraceSource  # noqa: E402

HEADER = (
    "| offered req/s | sent req/s | answered in full | chunks/s | lag P50 ms | lag P99 ms | sleeper P50 ms "
    "| sleeper P99 ms | TTFT P99 error ms | client CPU s | server CPU s |"
)


def poisson(rps: float, seconds: float, output: int) -> Trace:
    """Poisson arrivals of one length."""
    rng = np.random.default_rng(int(rps))
    n = max(1, round(rps * seconds))
    arrival = np.cumsum(rng.exponential(1 / rps, n))
    return Trace(
        arrival_s=arrival - arrival[0],
        input_tokens=np.full(n, 256, np.int32),
        output_tokens=np.full(n, output, np.int32),
        session=np.arange(n),
        block_offsets=np.zeros(n + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        block_tokens=0,
        source=TraceSource("benchmark"),
    )


def sleeper(deadlines: list[float], begin: object, results: object) -> None:
    """Sleep to each deadline in plain asyncio and report how late it woke."""

    async def sleep_all() -> list[float]:
        late = []
        start = time.perf_counter()
        for deadline in deadlines:
            wait = start + deadline - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            late.append(max(0.0, time.perf_counter() - start - deadline))
        return late

    begin.wait()  # type: ignore[attr-defined]
    results.put(asyncio.run(sleep_all()))  # type: ignore[attr-defined]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(rps: float, seconds: float, output: int) -> dict[str, float]:
    """One row of the table."""
    trace = poisson(rps, seconds, output)
    command = [sys.executable, "-m", "tuner.replay.mock", "--ttft", "0.05", "--tpot", "0.01"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    context = multiprocessing.get_context("spawn")
    begin, results = context.Event(), context.Queue()
    beside = context.Process(target=sleeper, args=(trace.arrival_s.tolist(), begin, results))
    beside.start()
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        time.sleep(1.0)
        server_cpu, cpu = cpu_seconds(server.pid), time.process_time()
        begin.set()
        options = ClientOptions(endpoint=Endpoint.COMPLETIONS, counters=False)
        replay = replay_http(url, "mock", Workload(trace), options=options)
        cpu, server_cpu = time.process_time() - cpu, cpu_seconds(server.pid) - server_cpu
        late = np.asarray(results.get(timeout=60))
        with urllib.request.urlopen(url + "/mock/log") as answer:
            log = json.load(answer)
    finally:
        server.terminate()
        server.wait()
        beside.join()
    truth = np.full(len(replay), np.nan)
    for served in log:
        truth[int(served["name"].rpartition("-")[2])] = served["t_first"] - served["t_received"]
    ok = replay.ok
    ours = (replay.first_s - replay.sent_s)[ok]
    lag = replay.lag_s()
    span = float(np.nanmax(replay.sent_s) - np.nanmin(replay.sent_s))
    return {
        "offered": trace.rate_rps,
        "sent": (len(lag) - 1) / span,
        "full": float(ok.mean()),
        "chunks": float(replay.tokens.sum()) / float(np.nanmax(replay.last_s)),
        "lag_p50": 1000 * nearest_rank(lag, 0.5),
        "lag_p99": 1000 * nearest_rank(lag, 0.99),
        "sleep_p50": 1000 * nearest_rank(late, 0.5),
        "sleep_p99": 1000 * nearest_rank(late, 0.99),
        "ttft_error": 1000 * (nearest_rank(ours, 0.99) - nearest_rank(truth[ok], 0.99)),
        "cpu": cpu,
        "server_cpu": server_cpu,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="100,200,400")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=32)
    asked = parser.parse_args()
    print(HEADER)
    print("|" + "---|" * HEADER.count(" | ") + "---|")
    for rate in asked.rates.split(","):
        row = measure(float(rate), asked.seconds, asked.tokens)
        print(
            f"| {row['offered']:.0f} | {row['sent']:.0f} | {row['full']:.1%} | {row['chunks']:.0f} "
            f"| {row['lag_p50']:.1f} | {row['lag_p99']:.1f} "
            f"| {row['sleep_p50']:.1f} | {row['sleep_p99']:.1f} "
            f"| {row['ttft_error']:+.1f} | {row['cpu']:.1f} | {row['server_cpu']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
