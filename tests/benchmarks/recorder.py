"""What a recorder adds: `python tests/benchmarks/recorder.py [--rate 100] [--seconds 10] [--pairs 5]`.

A mock server and a recorder, each in a process of its own; the same replay direct and through the recorder,
turn by turn, so that both meet the same machine. Printed are the P99s of E2E and TTFT of each and what the
recorder added; the median of the pairs is the figure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tuner.measure import nearest_rank  # noqa: E402
from tuner.replay import ClientOptions, Endpoint, Replay, Workload, replay_http  # noqa: E402
from tuner.traces import load_trace  # noqa: E402
from tuner.traces.trace import Trace, TraceSource  # noqa: E402


def poisson(rps: float, seconds: float) -> Trace:
    """Poisson arrivals, 256 tokens in and 32 out."""
    n = max(1, round(rps * seconds))
    arrival = np.cumsum(np.random.default_rng(1).exponential(1 / rps, n))
    return Trace(
        arrival_s=arrival - arrival[0],
        input_tokens=np.full(n, 256, np.int32),
        output_tokens=np.full(n, 32, np.int32),
        session=np.arange(n),
        block_offsets=np.zeros(n + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        block_tokens=0,
        source=TraceSource("benchmark"),
    )


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p99s_ms(replay: Replay) -> np.ndarray:
    """P99 of E2E and TTFT, by the scheduled and by the sent time, in milliseconds."""
    assert replay.ok.all(), replay.errors
    late = replay.sent_s - replay.scheduled_s
    columns = replay.e2e_s(), replay.ttft_s(), replay.e2e_s() - late, replay.ttft_s() - late
    return 1000 * np.array([nearest_rank(column, 0.99) for column in columns])


def main() -> None:
    """Print the pairs and their median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args()
    trace = poisson(asked.rate, asked.seconds)
    options = ClientOptions(endpoint=Endpoint.COMPLETIONS, counters=False)
    folder = Path(tempfile.mkdtemp())
    mock = [sys.executable, "-m", "tuner.replay.mock", "--ttft", "0.05", "--tpot", "0.01"]
    server = subprocess.Popen(mock, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    direct = server.stdout.readline().strip()
    record = [sys.executable, "-m", "tuner", "record", "--upstream", direct, "--port", "0"]
    recorder = subprocess.Popen(
        [*record, "--out", str(folder / "t.jsonl")], stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert recorder.stderr is not None
        through = recorder.stderr.readline().split()[1]
        for url in (direct, through):
            replay_http(url, "mock", Workload(poisson(50, 1)), options=options)
        time.sleep(1.0)
        print("| pair | E2E P99 direct ms | through ms | added ms | TTFT added ms | E2E added from send |")
        print("|" + "---|" * 6)
        added = []
        for pair in range(asked.pairs):
            p99s = {}
            # the order turns, so that neither is always first
            for url in (direct, through) if pair % 2 == 0 else (through, direct):
                p99s[url] = p99s_ms(replay_http(url, "mock", Workload(trace), options=options))
                time.sleep(0.5)
            more = p99s[through] - p99s[direct]
            added.append(more)
            print(
                f"| {pair + 1} | {p99s[direct][0]:.2f} | {p99s[through][0]:.2f} | {more[0]:+.2f} "
                f"| {more[1]:+.2f} | {more[2]:+.2f} |",
                flush=True,
            )
        middle = np.median(added, axis=0)
        print(f"| median | | | {middle[0]:+.2f} | {middle[1]:+.2f} | {middle[2]:+.2f} |")
        seconds = asked.seconds * asked.pairs
        print(f"\nthe recorder used {cpu_seconds(recorder.pid) / seconds:.0%} of a CPU while it recorded")
    finally:
        recorder.terminate()
        recorder.wait()
        server.terminate()
        server.wait()
    print(f"{len(load_trace(folder / 't.jsonl')):,} requests recorded")


if __name__ == "__main__":
    main()
