"""How long a launch takes, one way after another, and whether the fast way serves as well.

`python tests/benchmarks/launches.py --model FOLDER --gpu H200-141G --out FOLDER`

On a GPU, through the project's own engine and warm launcher: a plain launch with empty caches (once; whoever
runs this empties them), plainly again, forked with the CUDA graph sizes pinned, forked with vLLM's own sizes.
The throughput of a plain and of a forked server with pinned sizes is that of prompts that all arrive at once.
Every figure is written as soon as it is there: a run that is cut off loses none.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tuner.engines.base import LaunchFailure  # noqa: E402
from tuner.engines.vllm import LauncherKind, VllmEngine, VllmServer  # noqa: E402
from tuner.hardware import find_gpu  # noqa: E402
from tuner.models import find_model  # noqa: E402
from tuner.replay import Workload  # noqa: E402
from tuner.space import LaunchConfig, Rules, find_vllm, plan_memory  # noqa: E402
from tuner.traces.trace import Trace, TraceSource  # noqa: E402

SHAPE = {"max-model-len": 8192, "max-num-seqs": 256, "gpu-memory-utilization": 0.9}
WAYS = ("cold", "plain", "pinned first", "pinned", "forked")
NAMES = {
    "cold": "plain, caches empty",
    "plain": "plain",
    "pinned first": "forked, sizes pinned, compiling for them",
    "pinned": "forked, sizes pinned",
    "forked": "forked",
}
MEASURED = ("plain", "pinned")


def dense(largest: int) -> list[int]:
    """vLLM's own grid of graph sizes up to the largest batch that decodes together."""
    return [1, 2, 4, *range(8, min(largest, 256), 8), *range(256, largest + 1, 16)]


def at_once(requests: int, tokens: int, output: int) -> Trace:
    """Prompts of one length that all arrive together and share nothing."""
    return Trace(
        arrival_s=np.zeros(requests),
        input_tokens=np.full(requests, tokens, np.int32),
        output_tokens=np.full(requests, output, np.int32),
        session=np.arange(requests),
        block_offsets=np.zeros(requests + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        block_tokens=0,
        source=TraceSource("benchmark"),
    )


class Table:
    """Rows as they come, kept in results.json and table.md."""

    def __init__(self, out: Path, head: dict[str, Any]) -> None:
        self._out, self._head = out, head
        self.rows: list[dict[str, Any]] = []
        out.mkdir(parents=True, exist_ok=True)

    def add(self, **row: Any) -> None:
        """Keep a row and show it."""
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        text = json.dumps({**self._head, "rows": self.rows}, indent=1)
        (self._out / "results.json").write_text(text + "\n")
        (self._out / "table.md").write_text("\n".join(self.lines()) + "\n")

    def lines(self) -> Iterator[str]:
        """The table in Markdown."""
        yield "| launch | seconds to ready | mean | of plain | requests/s at once | KV tokens (predicted) |"
        yield "|---|---|---|---|---|---|"
        ready = {way: [r["ready_s"] for r in self.rows if r["way"] == way and "ready_s" in r] for way in WAYS}
        for way in WAYS:
            if not (seconds := ready[way]):
                continue
            mean = sum(seconds) / len(seconds)
            share = f"{mean * len(ready['plain']) / sum(ready['plain']):.2f}" if ready["plain"] else ""
            rates = [rps for r in self.rows if r["way"] == way for rps in r.get("at_once_rps", ())]
            last = next(r for r in reversed(self.rows) if r["way"] == way and "ready_s" in r)
            yield (
                f"| {NAMES[way]} | {', '.join(f'{s:.1f}' for s in seconds)} | {mean:.1f} | {share} "
                f"| {', '.join(f'{rps:.2f}' for rps in rates)} "
                f"| {last['kv_tokens']:,} ({last['predicted_kv_tokens']:,}) |"
            )


def measure(server: VllmServer, trace: Trace, repeats: int) -> Iterator[float]:
    """Requests a second of prompts that all arrive at once, from a cold prefix cache each time."""
    for _ in range(repeats):
        replay = server.replay(Workload(trace))
        assert replay.ok.all(), dict(replay.errors)
        yield len(replay) / float(np.nanmax(replay.last_s))


def main() -> None:
    """Launch, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", help="the interpreter that has vLLM")
    parser.add_argument("--ways", default=",".join(WAYS), help="in this order: " + ", ".join(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--at-once", default="512,1000,200", help="prompts, tokens in, tokens out")
    parser.add_argument("--set", action="append", default=[], metavar="FLAG=VALUE")
    parser.add_argument("--sizes-to", type=int, help="largest pinned graph size; default: max-num-seqs")
    asked = parser.parse_args()
    given = {name: yaml.safe_load(value) for name, _, value in (text.partition("=") for text in asked.set)}
    shape = {**SHAPE, **given}
    pinned = {**shape, "cudagraph-capture-sizes": dense(asked.sizes_to or shape["max-num-seqs"])}
    gpu, model = find_gpu(asked.gpu), find_model(asked.model)
    installed = find_vllm(asked.python)
    assert installed is not None, "no vLLM here"
    table = Table(asked.out, {"gpu": gpu.label, "vllm": installed.version, "flags": shape, "pinned": pinned})
    trace = at_once(*map(int, asked.at_once.split(",")))
    rules = Rules(gpu, model, installed.version)
    engines: dict[LauncherKind, VllmEngine] = {}
    try:
        for way in asked.ways.split(","):
            kind = LauncherKind.PLAIN if way in ("cold", "plain") else LauncherKind.WARM
            if kind not in engines:
                engines[kind] = VllmEngine(installed, model=asked.model, gpu=gpu, launcher=kind)
            engine = engines[kind]
            config = LaunchConfig.of(pinned if way.startswith("pinned") else shape)
            refusal = rules.check(config)
            assert refusal is None, refusal
            predicted = plan_memory(gpu, model, config, installed.version).kv_tokens
            rounds = 1 if way in ("cold", "pinned first") else asked.rounds
            for number in range(1, rounds + 1):
                folder = asked.out / "logs" / f"{way.replace(' ', '_')}_{number}"
                began = time.monotonic()
                try:
                    server = engine.launch(config, folder)
                except LaunchFailure as failure:
                    table.add(way=way, failed=str(failure), seconds=failure.seconds)
                    continue
                row: dict[str, Any] = {
                    "way": way,
                    "launcher": str(engine.launcher),
                    "ready_s": round(server.facts.startup_s, 2),
                    "before_s": round(time.monotonic() - began - server.facts.startup_s, 2),
                    "kv_tokens": server.facts.kv_tokens,
                    "predicted_kv_tokens": predicted,
                    "weights_gib": server.facts.weights_gib,
                }
                try:
                    if way in MEASURED and number == rounds and asked.repeats:
                        rates = measure(server, trace, asked.repeats)
                        row["at_once_rps"] = [round(rps, 3) for rps in rates]
                finally:
                    began = time.monotonic()
                    server.stop()
                row["stop_s"] = round(time.monotonic() - began, 2)
                table.add(**row, notes=[*server.notes, *engine.notes])
    finally:
        for engine in engines.values():
            engine.close()
    print("\n".join(table.lines()), flush=True)


if __name__ == "__main__":
    main()
