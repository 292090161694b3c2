"""Reading and scaling traces: `python tests/benchmarks/traces.py [ROWS]` (default 1,000,000).

Writes a CSV in the layout of Azure's 2024 trace, reads it, and makes loads of it: rows read per second of one
core, the process's peak memory, and milliseconds a load.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tuner.traces import NestedLoads, load_trace

_ROWS_AT_ONCE = 100_000


def write_azure_2024(path: Path, rows: int) -> None:
    """Poisson arrivals of 17 requests/s; every thousandth time is a whole second, without a fraction."""
    rng = np.random.default_rng(0)
    now = np.datetime64("2024-05-10T00:00:00", "us").astype(np.int64)
    with path.open("w") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for start in range(0, rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, rows - start)
            at = now + np.cumsum(rng.exponential(60_000, count).astype(np.int64) + 1)
            at[::1000] = at[::1000] // 10**6 * 10**6
            now = at[-1]
            times = np.datetime_as_string(at.astype("datetime64[us]"))
            prompts, answers = rng.integers(1, 8000, count), rng.integers(1, 900, count)
            file.writelines(
                f"{t[:10]} {t[11:].removesuffix('.000000')}+00:00,{i},{o}\n"
                for t, i, o in zip(times, prompts, answers, strict=True)
            )


def main(rows: int) -> None:
    """Print one line a figure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "azure-2024.csv"
        write_azure_2024(path, rows)
        start = time.process_time()
        trace = load_trace(path)
        seconds = time.process_time() - start
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"read      {len(trace):,} rows, {len(trace) / seconds:,.0f} rows/s, peak {peak_mb:,.0f} MB")
    loads = NestedLoads(trace, requests=1000)
    start = time.process_time()
    for step in range(20):
        loads.at(loads.natural_rps * 1.2 ** (step - 10))
    print(f"scaled    1,000 requests in {(time.process_time() - start) / 20 * 1e3:.1f} ms a load")


if __name__ == "__main__":
    main(int(sys.argv[1].replace(",", "").replace("_", "")) if len(sys.argv) > 1 else 1_000_000)
