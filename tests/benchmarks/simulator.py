"""Requests simulated per second of one core: `python tests/benchmarks/simulator.py [REQUESTS]`.

Each trace is replayed at 80% of the load that one GPU carries within 30 s at the 99th percentile. The time is
that of a whole replay, the preparation of its blocks included; traces that are not there are left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tuner.engines.simulated import SimulatedEngine, SimulatedServer
from tuner.hardware import find_gpu
from tuner.measure.loadtest import LoadTest
from tuner.models import find_model
from tuner.replay import Workload
from tuner.space import LaunchConfig
from tuner.spec import Slo
from tuner.traces import Trace, load_trace, shipped_trace

SHARED = Path(__file__).parents[2].parent / "shared" / "traces"
PLACES = {
    "Azure conversation, H200, 8B": (
        SHARED / "azure2023" / "AzureLLMInferenceTrace_conv.csv",
        "H200-141G",
        "meta-llama/Llama-3.1-8B-Instruct",
    ),
    "Mooncake conversation, H200, 8B": (
        SHARED / "mooncake_fast25" / "conversation_trace.jsonl",
        "H200-141G",
        "meta-llama/Llama-3.1-8B-Instruct",
    ),
    "shipped trace, A100-80G, kimi-k2.6-awq": (None, "A100-80G", "kimi-k2.6-awq"),
}
SLO = Slo(e2e_p99_s=30.0)


def _server(gpu: str, model: str) -> SimulatedServer:
    engine = SimulatedEngine(find_gpu(gpu), find_model(model), "0.21.0")
    return engine.launch(LaunchConfig(), Path())


def _load(trace: Trace, server: SimulatedServer, requests: int, share: float) -> tuple[Trace, float]:
    """The trace at a share of its capacity, and that capacity in requests/s."""
    test = LoadTest(trace, SLO, requests=min(requests, 1000))
    capacity = test.capacity(server.replay).rps or test.loads.natural_rps
    return LoadTest(trace, SLO, requests=requests).loads.at(share * capacity), capacity


def measure(requests: int, repeats: int = 3) -> Iterator[tuple[str, float, float, Trace]]:
    """(name, requests simulated per second, capacity in requests/s, the trace replayed), place by place."""
    for name, (path, gpu, model) in PLACES.items():
        if path is not None and not path.exists():
            continue
        server = _server(gpu, model)
        trace, capacity = _load(load_trace(path) if path else shipped_trace(), server, requests, 0.8)
        best = min(_seconds(server, trace) for _ in range(repeats))
        yield name, len(trace) / best, capacity, trace


def _seconds(server: SimulatedServer, trace: Trace) -> float:
    start = time.process_time()
    server.replay(Workload(trace))
    return time.process_time() - start


def main(requests: int) -> None:
    """Print one line a trace."""
    for name, speed, capacity, trace in measure(requests):
        print(
            f"{name}: {speed:,.0f} requests simulated/s of one core ({len(trace)} requests at "
            f"{trace.rate_rps:.1f} requests/s, 80% of {capacity:.1f}; mean prompt "
            f"{trace.input_tokens.mean():,.0f}, answer {trace.output_tokens.mean():,.0f} tokens)"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
