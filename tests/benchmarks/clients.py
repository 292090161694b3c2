"""Load clients side by side: `python tests/benchmarks/clients.py [--rates 100,200,400] [--seconds 20]`.

Each client in turn sends evenly spaced requests of 32 tokens to a mock server in a process of its own, and a
bare asyncio sleeper with the same deadlines runs beside it. All are judged by the server's own log, not by
what they say of themselves: how many requests came and when, the lag behind the even schedule (anchored at
the earliest request), and the P99 of the TTFT that the client reports against the one that the server gave.
CPU seconds are those of the client's whole process tree, while requests came and from its start to its end.

vLLM's `vllm bench serve` needs --vllm-python, aiperf needs --aiperf (its program); both need --tokenizer, a
folder with a tokenizer. A client that is not named is left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
from replay import poisson, sleeper

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tuner.measure import nearest_rank  # noqa: E402
from tuner.replay import ClientOptions, Endpoint, Workload, replay_http  # noqa: E402

PROMPT, TOKENS = 256, 32
TTFT_S, TPOT_S = 0.05, 0.01
SAMPLE_S = 0.2
HEADER = (
    "| client | offered req/s | delivered | lag P50 ms | lag P99 ms | sleeper P99 ms | TTFT P99 error ms "
    "| CPU s in the run | CPU s in all | server CPU |"
)
VLLM_MAIN = "from vllm.entrypoints.cli.main import main; main()"


@dataclass(frozen=True)
class Load:
    """One load for every client."""

    rps: float
    seconds: float
    folder: Path

    @property
    def requests(self) -> int:
        return max(1, round(self.rps * self.seconds))


@dataclass(frozen=True)
class Client:
    """A client: its command line, its environment, and the TTFT P99 in seconds that it reports."""

    name: str
    argv: Callable[[str, Load], list[str]]
    ttft_p99_s: Callable[[Load], float]
    environment: dict[str, str]


def ours() -> Client:
    """This file again, with --send."""
    return Client(
        "kimi-tune",
        lambda url, load: [
            sys.executable,
            __file__,
            "--send",
            url,
            str(load.rps),
            str(load.requests),
            str(load.folder),
        ],
        lambda load: float(json.loads((load.folder / "ours.json").read_text())["ttft_p99_s"]),
        {},
    )


def send(url: str, rps: float, requests: int, folder: Path) -> None:
    """Our client: one replay, and the TTFT from the time of sending as the others have it."""
    trace = poisson(rps, requests / rps, TOKENS)
    even = replace(trace, arrival_s=np.arange(requests) / rps)
    replay = replay_http(
        url, "mock", Workload(even), options=ClientOptions(endpoint=Endpoint.COMPLETIONS, counters=False)
    )
    ttft = (replay.first_s - replay.sent_s)[replay.ok]
    lag = replay.lag_s()
    figures = {
        "ttft_p99_s": nearest_rank(ttft, 0.99),
        "lag_p99_s": nearest_rank(lag, 0.99),
        "answered": int(replay.ok.sum()),
        "processes": replay.counters["client_processes"],
    }
    (folder / "ours.json").write_text(json.dumps(figures))


def vllm_bench(python: str, tokenizer: str, overlay: Path) -> Client:
    """`vllm bench serve`, evenly spaced."""

    def argv(url: str, load: Load) -> list[str]:
        return [
            python, "-c", VLLM_MAIN, "bench", "serve", "--backend", "openai", "--base-url", url,
            "--endpoint", "/v1/completions", "--model", "mock", "--tokenizer", tokenizer,
            "--dataset-name", "random", "--random-input-len", str(PROMPT), "--random-output-len", str(TOKENS),
            "--num-prompts", str(load.requests), "--request-rate", str(load.rps), "--burstiness", "1000000",
            "--ignore-eos", "--disable-tqdm", "--save-result", "--result-dir", str(load.folder),
            "--result-filename", "vllm.json", "--percentile-metrics", "ttft,e2el",
            "--metric-percentiles", "99",
        ]  # fmt: skip

    return Client(
        "vllm bench serve",
        argv,
        lambda load: float(json.loads((load.folder / "vllm.json").read_text())["p99_ttft_ms"]) / 1000,
        {"PYTHONPATH": str(overlay)},
    )


def aiperf(program: str, tokenizer: str) -> Client:
    """aiperf, evenly spaced."""

    def argv(url: str, load: Load) -> list[str]:
        return [
            program, "profile", "--model", "mock", "--url", url, "--endpoint-type", "completions",
            "--streaming", "--tokenizer", tokenizer, "--isl", str(PROMPT), "--osl", str(TOKENS),
            "--extra-inputs", "ignore_eos:true", "--request-rate", str(load.rps),
            "--arrival-pattern", "constant", "--request-count", str(load.requests),
            "--artifact-dir", str(load.folder / "aiperf"), "--ui", "none",
        ]  # fmt: skip

    def ttft(load: Load) -> float:
        found = next((load.folder / "aiperf").rglob("profile_export_aiperf.json"))
        return float(json.loads(found.read_text())["time_to_first_token"]["p99"]) / 1000

    return Client("aiperf", argv, ttft, {})


def named_vllm(python: str, folder: Path) -> Path:
    """A folder that makes the distribution of `python` known as vllm: the one for CPUs has another name, and
    the command line asks for its own version.
    """
    code = (
        "import importlib.metadata as m, pathlib, vllm\n"
        "d = [d for d in m.distributions() if (d.metadata['Name'] or '').startswith('vllm')][0]\n"
        "print(d.metadata['Name'], d.version, d._path, sep='\\t')"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    name, version, path = done.stdout.strip().splitlines()[-1].split("\t")
    if name != "vllm":
        # vLLM takes its platform from the version's local part
        local = version if "+" in version else f"{version}+{name.rpartition('-')[2]}"
        copy = folder / f"vllm-{local}.dist-info"
        shutil.copytree(path, copy)
        text = (copy / "METADATA").read_text()
        text = text.replace(f"Name: {name}", "Name: vllm", 1)
        (copy / "METADATA").write_text(text.replace(f"Version: {version}", f"Version: {local}", 1))
    return folder


class TreeCpu:
    """CPU seconds of a process and its children over time, sampled until it ends."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[int, float] = {}
        self.samples: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def between(self, begin_s: float, end_s: float) -> float:
        times, used = zip(*self.samples, strict=True)
        return float(np.interp(end_s, times, used) - np.interp(begin_s, times, used))

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                break
            for process in tree:
                try:
                    times = process.cpu_times()
                    self._seen[process.pid] = times.user + times.system
                except psutil.Error:
                    continue
            self.samples.append((time.perf_counter(), sum(self._seen.values())))
            self._over.wait(SAMPLE_S)


def measure(client: Client, load: Load) -> str:
    """One row of the table."""
    mock = [sys.executable, "-m", "tuner.replay.mock", "--ttft", str(TTFT_S), "--tpot", str(TPOT_S)]
    server = subprocess.Popen(mock, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    context = multiprocessing.get_context("spawn")
    begin, results = context.Event(), context.Queue()
    deadlines = (np.arange(load.requests) / load.rps).tolist()
    beside = context.Process(target=sleeper, args=(deadlines, begin, results))
    beside.start()
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        served_cpu = TreeCpu(server.pid)
        with (load.folder / "client.log").open("wb") as log:
            process = subprocess.Popen(
                client.argv(url, load),
                stdout=log,
                stderr=log,
                cwd=load.folder,
                env={**os.environ, **client.environment},
            )
        used = TreeCpu(process.pid)
        # the sleeper begins with the load, not with the client's imports
        while process.poll() is None and counted(url) < 5:
            time.sleep(0.1)
        begin.set()
        code = process.wait()
        used.stop()
        if code:
            raise SystemExit(
                f"{client.name} ended with {code}: {(load.folder / 'client.log').read_text()[-1500:]}"
            )
        late = np.asarray(results.get(timeout=120))
        with urllib.request.urlopen(url + "/mock/log") as answer:
            log_lines = json.load(answer)[-load.requests :]
        served_cpu.stop()
    finally:
        server.terminate()
        server.wait()
        beside.terminate()
        beside.join()
    received = np.sort([line["t_received"] for line in log_lines])
    span = received[-1] - received[0]
    ideal = np.arange(len(received)) / load.rps
    lag = received - ideal - np.min(received - ideal)
    truth = np.asarray([line["t_first"] - line["t_received"] for line in log_lines])
    error = client.ttft_p99_s(load) - nearest_rank(truth, 0.99)
    cells = [
        client.name,
        f"{load.rps:.0f}",
        f"{(len(received) - 1) / span:.1f}",
        f"{1000 * nearest_rank(lag, 0.5):.1f}",
        f"{1000 * nearest_rank(lag, 0.99):.1f}",
        f"{1000 * nearest_rank(late, 0.99):.1f}",
        f"{1000 * error:+.1f}",
        f"{used.between(received[0], received[-1] + TTFT_S + TOKENS * TPOT_S):.1f}",
        f"{used.samples[-1][1]:.1f}",
        f"{served_cpu.between(received[0], received[-1]) / span:.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


def counted(url: str) -> int:
    """Requests that the server has seen."""
    with urllib.request.urlopen(url + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("vllm:num_requests_running"):
                return int(float(line.split()[-1]))
    return 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="100,200,400")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--vllm-python", default=None)
    parser.add_argument("--aiperf", default=None)
    parser.add_argument("--tokenizer", default=None)
    parser.add_argument("--send", nargs=4, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.send:
        url, rps, requests, folder = asked.send
        send(url, float(rps), int(requests), Path(folder))
        return
    with tempfile.TemporaryDirectory() as made:
        clients = [ours()]
        if asked.vllm_python:
            overlay = Path(made) / "overlay"
            overlay.mkdir()
            clients.append(
                vllm_bench(asked.vllm_python, asked.tokenizer, named_vllm(asked.vllm_python, overlay))
            )
        if asked.aiperf:
            clients.append(aiperf(asked.aiperf, asked.tokenizer))
        print(HEADER)
        print("|" + "---|" * (HEADER.count("|") - 1))
        for rate in asked.rates.split(","):
            for client in clients:
                folder = Path(made) / f"{rate}-{clients.index(client)}"
                folder.mkdir()
                print(measure(client, Load(float(rate), asked.seconds, folder)), flush=True)


if __name__ == "__main__":
    main()
