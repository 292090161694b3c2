"""Servers that are not ours, replayed by the same command: `pytest -m servers` (and `-m vllm` for vLLM).

Each is started by the interpreter that has it: KIMI_TUNE_LLAMA_PYTHON (llama-cpp-python[server] and gguf),
KIMI_TUNE_TRANSFORMERS_PYTHON (transformers[serving], torch), KIMI_TUNE_VLLM_PYTHON; default: this one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from even_traces import even_trace
from tiny_model import write_tiny_model

from tuner.errors import TuneError
from tuner.replay import check_server
from tuner.traces import write_trace

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / "tests" / "helpers"
READY_S = 540.0
N, TOKENS, PROMPT = 24, 12, 96


@dataclass(frozen=True)
class Kind:
    """How to start one kind of server."""

    variable: str
    needs: str
    argv: Callable[[str, Path, int], tuple[list[str], str]]
    """(python, folder, port) -> command line and the model's name"""


def llama(python: str, folder: Path, port: int) -> tuple[list[str], str]:
    model = folder / "tiny.gguf"
    subprocess.run([python, str(HELPERS / "tiny_gguf.py"), str(model)], check=True, capture_output=True)
    options = ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "1024", "--n_threads", "1"]
    # it would end the answer under way for every new request
    options += ["--interrupt_requests", "false"]
    return [python, "-m", "llama_cpp.server", "--model", str(model), *options], str(model)


def transformers(python: str, folder: Path, port: int) -> tuple[list[str], str]:
    model = folder / "tiny"
    subprocess.run([python, str(HELPERS / "tiny_weights.py"), str(model)], check=True, capture_output=True)
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    return [python, "-m", "transformers.cli.transformers", "serve", str(model), *options], str(model)


def vllm(python: str, folder: Path, port: int) -> tuple[list[str], str]:
    model = write_tiny_model(folder / "tiny")
    options = ["--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--enforce-eager"]
    options += ["--max-model-len", "2048"]
    return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *options], str(model)


KINDS = [
    pytest.param(Kind("KIMI_TUNE_LLAMA_PYTHON", "llama_cpp.server", llama), marks=pytest.mark.servers),
    pytest.param(
        Kind("KIMI_TUNE_TRANSFORMERS_PYTHON", "transformers.cli.serve", transformers),
        marks=pytest.mark.servers,
    ),
    pytest.param(Kind("KIMI_TUNE_VLLM_PYTHON", "vllm.version", vllm), marks=pytest.mark.vllm),
]


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server that is up: its URL and its model's name."""
    kind: Kind = request.param
    python = os.environ.get(kind.variable, sys.executable)
    found = subprocess.run([python, "-c", f"import {kind.needs}"], capture_output=True, text=True)
    if found.returncode:
        why = (found.stderr.strip().splitlines() or ["?"])[-1]
        pytest.skip(f"{python} has no {kind.needs} ({why}); name one that has it with {kind.variable}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    hub = tmp_path / "hub"
    hub.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    environment |= {"VLLM_CPU_KVCACHE_SPACE": "1"}
    argv, model = kind.argv(python, tmp_path, port)
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdout=log, stderr=log, env=environment, cwd=tmp_path, start_new_session=True
        )
    try:
        wait_ready(process, f"http://127.0.0.1:{port}", tmp_path / "server.log")
        yield f"http://127.0.0.1:{port}", model
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until it lists its models."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            check_server(url)
        except TuneError:
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"not ready within {READY_S:.0f} s: {log.read_text()[-2000:]}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("server", KINDS, indirect=True, ids=["llama", "transformers", "vllm"])
def test_a_real_server_is_replayed_without_special_cases(server: tuple[str, str], tmp_path: Path) -> None:
    url, model = server
    trace = tmp_path / "trace.jsonl"
    write_trace(even_trace(N, rps=2, prompt=PROMPT, output=TOKENS), trace)
    argv = ["replay", "--url", url, "--model", model, "--trace", str(trace), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *argv],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode in (0, 6), done.stderr
    figures = json.loads(done.stdout)
    print(json.dumps({name: figures[name] for name in ("requests", "failed", "ttft_s", "e2e_s", "tpot_s")}))
    print(figures["counters"], figures["server"], done.stderr)
    assert figures["errors"] == {} and figures["failed"] == 0
    assert figures["requests"] == N
    assert 0 < figures["ttft_s"]["p50"] < figures["e2e_s"]["p50"]
    # lengths are the trace's: exact ids, or words by the server's own usage
    counted = figures["counters"].get("usage_prompt_tokens")
    assert counted is None or abs(counted - N * PROMPT) <= 0.1 * N * PROMPT + 2 * N
    assert figures["invalid_reason"] is None or "lag" in figures["invalid_reason"]
    assert figures["server"] is None or figures["server"]["mismatch"] is None
