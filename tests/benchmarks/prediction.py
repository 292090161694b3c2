"""How well the simulator foretells a card: configurations measured at one load each, and what it said.

`python tests/benchmarks/prediction.py measure --model FOLDER --gpu H200-141G --trace FILE --out FOLDER`
launches each configuration on the real engine, replays 45 seconds of the trace at one load and keeps every
record. `… predict` with the same arguments, anywhere, calibrates the simulator on the first two of them and
prints what it says of all beside what was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from launches import dense  # noqa: E402

from tuner.engines.base import LaunchFailure, ServerFacts  # noqa: E402
from tuner.engines.simulated import SimulatedEngine, SimulatedPredictor  # noqa: E402
from tuner.engines.vllm import LauncherKind, VllmEngine  # noqa: E402
from tuner.hardware import find_gpu  # noqa: E402
from tuner.models import find_model  # noqa: E402
from tuner.replay import Replay, Workload  # noqa: E402
from tuner.space import LaunchConfig, Rules, find_vllm  # noqa: E402
from tuner.spec import FlagValue  # noqa: E402
from tuner.traces import NestedLoads, Trace, load_trace  # noqa: E402

COLUMNS = ("scheduled_s", "sent_s", "first_s", "last_s", "input_tokens", "output_tokens", "tokens")
MORE_COLUMNS = ("first_tokens", "status")
BASE: dict[str, FlagValue] = {"max-model-len": 8192, "gpu-memory-utilization": 0.9}


SIZES = dense(512)
CONFIGS: dict[str, dict[str, FlagValue]] = {
    "default": {},
    "seqs 64": {"max-num-seqs": 64, "cudagraph-capture-sizes": SIZES},
    "seqs 128": {"max-num-seqs": 128, "cudagraph-capture-sizes": SIZES},
    "little memory": {"gpu-memory-utilization": 0.2},
    "small steps": {"max-num-batched-tokens": 2048},
    "large steps": {"max-num-batched-tokens": 16384, "max-num-seqs": 256},
}
"""In the order of their launches; the first two are those that calibrate."""


def workload(path: Path, load_rps: float, seconds: float) -> Trace:
    """So many seconds of the trace at a load."""
    trace = load_trace(path)
    return NestedLoads(trace, requests=2, min_duration_s=seconds).at(load_rps)


def measure(asked: argparse.Namespace) -> None:
    """Launch, replay, keep."""
    gpu, model, installed = find_gpu(asked.gpu), find_model(asked.model), find_vllm(asked.python)
    assert installed is not None, "no vLLM here"
    trace = workload(asked.trace, asked.load, asked.seconds)
    rules = Rules(gpu, model, installed.version)
    engine = VllmEngine(installed, model=asked.model, gpu=gpu, launcher=LauncherKind(asked.launcher))
    rows: list[dict[str, Any]] = []
    asked.out.mkdir(parents=True, exist_ok=True)
    chosen = asked.only.split(",") if asked.only else list(CONFIGS)
    try:
        for name in chosen:
            config = LaunchConfig.of({**BASE, **CONFIGS[name]})
            refusal = rules.check(config)
            assert refusal is None, refusal
            began = time.monotonic()
            try:
                with engine.launch(config, asked.out / "logs" / name.replace(" ", "_")) as server:
                    replay = server.replay(Workload(trace))
                    said = server.facts
            except LaunchFailure as failure:
                print(json.dumps({"name": name, "failed": str(failure)}), flush=True)
                continue
            row = {
                "name": name,
                "config": dict(config),
                "kv_tokens": said.kv_tokens,
                "weights_gib": said.weights_gib,
                "startup_s": round(said.startup_s, 2),
                "seconds": round(time.monotonic() - began, 1),
                "counters": dict(replay.counters),
                "effective": dict(said.effective),
                "load_rps": asked.load,
                **figures(replay),
            }
            rows.append(row)
            print(
                json.dumps({k: v for k, v in row.items() if k not in ("effective", "counters")}), flush=True
            )
            columns = {key: getattr(replay, key) for key in (*COLUMNS, *MORE_COLUMNS)}
            np.savez_compressed(asked.out / f"{name.replace(' ', '_')}.npz", **columns)
            head = {"gpu": gpu.label, "vllm": installed.version, "seconds": asked.seconds}
            (asked.out / "measured.json").write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    finally:
        engine.close()


def figures(replay: Replay) -> dict[str, Any]:
    """What is compared: latencies of the requests that were answered, and the client's lag."""
    ok = replay.ok
    e2e, ttft, tpot = (column[ok] for column in (replay.e2e_s(), replay.ttft_s(), replay.tpot_s()))
    lag = replay.lag_s()
    return {
        "requests": len(replay),
        "failed": int((~ok).sum()),
        "rps": round(float(ok.sum() / np.nanmax(replay.last_s)), 3),
        "e2e_mean_s": round(float(e2e.mean()), 4),
        "e2e_p99_s": round(float(np.quantile(e2e, 0.99, method="inverted_cdf")), 4),
        "ttft_mean_s": round(float(ttft.mean()), 4),
        "ttft_p99_s": round(float(np.quantile(ttft, 0.99, method="inverted_cdf")), 4),
        "tpot_mean_s": round(float(tpot.mean()), 5),
        "lag_p99_s": round(float(np.nanquantile(lag, 0.99)), 4),
    }


@dataclass(frozen=True)
class Judged:
    """A replay as the predictor reads it; whether it meets an SLO is not asked here."""

    replay: Replay
    passes: bool = True
    margin: float = 0.0


@dataclass(frozen=True)
class OneLoad:
    """The one load that was measured, whatever is asked for."""

    trace: Trace
    start: float
    floor: float

    def judge(self, send: Callable[[Workload, None], Replay], load: float) -> Judged:
        """Replay it."""
        return Judged(send(Workload(self.trace), None))


COMPARED = {
    "rps": "requests/s",
    "e2e_mean_s": "mean E2E, s",
    "e2e_p99_s": "P99 E2E, s",
    "ttft_p99_s": "P99 TTFT, s",
    "tpot_mean_s": "mean TPOT, s",
}


def predict(asked: argparse.Namespace) -> None:
    """Calibrate on the first two, and print predicted, measured, error."""
    kept = json.loads((asked.out / "measured.json").read_text())
    gpu, model = find_gpu(asked.gpu), find_model(asked.model)
    trace = workload(asked.trace, asked.load, asked.seconds)
    engine = SimulatedEngine(gpu, model, kept["vllm"])
    load = OneLoad(trace, asked.load, asked.load)
    predictor = SimulatedPredictor(engine, lambda _trace, _slo: load, exact=False)
    for after in range(asked.launches + 1):
        errors: dict[str, list[float]] = {key: [] for key in COMPARED}
        print(f"\nAfter {after} launches:\n")
        print("| configuration | " + " | ".join(COMPARED.values()) + " | KV tokens |")
        print("|---" * (len(COMPARED) + 2) + "|")
        for number, row in enumerate(kept["rows"]):
            server = predictor.server(LaunchConfig.of(row["config"]))
            said = figures(server.replay(Workload(trace)))
            cells = []
            for key in COMPARED:
                error = said[key] / row[key] - 1.0
                cells.append(f"{said[key]:.4g} ({row[key]:.4g}, {error:+.1%})")
                if number >= after:
                    errors[key].append(abs(error))
            taught = " (launched)" if number < after else ""
            tokens = f"{server.facts.kv_tokens:,} ({row['kv_tokens']:,})"
            print(f"| {row['name']}{taught} | " + " | ".join(cells) + f" | {tokens} |")
        middle = [f"{np.median(values):.1%}" for values in errors.values()]
        print("| median error of those to come | " + " | ".join(middle) + " | |")
        if after < asked.launches:
            teach(predictor, asked.out, kept["rows"][after], trace)


def teach(predictor: SimulatedPredictor, out: Path, row: dict[str, Any], trace: Trace) -> None:
    """Let the predictor learn from one measured launch."""
    with np.load(out / f"{row['name'].replace(' ', '_')}.npz") as columns:
        replay = Replay(
            **{key: columns[key] for key in (*COLUMNS, *MORE_COLUMNS)},
            offered_rps=trace.rate_rps,
            engine_s=row["seconds"],
        )
    facts = ServerFacts(row["startup_s"], row["kv_tokens"], (), row["weights_gib"], row["effective"])
    predictor.learn(LaunchConfig.of(row["config"]), facts, [(row["load_rps"], Judged(replay))])


def main() -> None:
    """Measure or predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "predict"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--load", type=float, default=24.0, help="requests/s")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--only", help="names of configurations, with commas")
    parser.add_argument("--launcher", default="auto")
    parser.add_argument("--python", help="the interpreter that has vLLM")
    parser.add_argument("--launches", type=int, default=2, help="predict: how many calibrate")
    asked = parser.parse_args()
    {"measure": measure, "predict": predict}[asked.what](asked)


if __name__ == "__main__":
    main()
