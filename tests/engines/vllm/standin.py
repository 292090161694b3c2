"""Behaves like a vLLM server, or like a broken one: `python standin.py serve MODEL --port N …`.

Standard library only, so that it starts quickly. The fault is the content of the file named by STANDIN_FAULT,
one word and perhaps a text; it is read at the start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOG = """INFO non-default args: {{'model': '{model}', 'max_num_seqs': 8}}
INFO [model.py:1] Resolved architecture: LlamaForCausalLM
INFO [core.py:1] Initializing a V1 LLM engine (v0.21.0) with config: model='{model}', quantization=None
INFO [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and 2.1 seconds
INFO [kv_cache_utils.py:1] GPU KV cache size: 64,000 tokens
INFO [core.py:1] init engine (profile, create kv cache, warmup model) took 1.00 s
INFO [api_server.py:1] Starting vLLM server on http://127.0.0.1:{port}
INFO:     Application startup complete."""
AFTER = 3  # completions before a fault of a running server shows


class State:
    def __init__(self, name: str, fault: str) -> None:
        self.name, self.fault = name, fault
        self.lock = threading.Lock()
        self.completions = self.prompt = self.generated = self.resets = self.waiting = 0

    @property
    def due(self) -> bool:
        return self.completions > AFTER


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, value: object) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        state = self.state
        if self.path == "/health":
            self.answer(503 if state.fault == "engine_dead" and state.due else 200, "")
        elif self.path == "/v1/models":
            name = "somebody-else" if state.fault == "other_server" else state.name
            self.answer(200, {"data": [{"id": name, "max_model_len": 4096}]})
        elif self.path == "/metrics":
            self.answer(
                200,
                'vllm:cache_config_info{block_size="16",num_gpu_blocks="4000",enable_prefix_caching="True",'
                'gpu_memory_utilization="0.9",cache_dtype="auto"} 1.0\n'
                f'vllm:prompt_tokens_total{{engine="0"}} {state.prompt}\n'
                f'vllm:generation_tokens_total{{engine="0"}} {state.generated}\n'
                f'vllm:request_success_total{{engine="0",finished_reason="length"}} {state.completions}\n'
                f"vllm:num_requests_running 0\nvllm:num_requests_waiting {state.waiting}\n"
                f"vllm:num_preemptions_total 0\nstandin:resets {state.resets}\n",
            )
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        state = self.state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/reset_prefix_cache":
            state.resets += 1
            self.answer(200, "")
            return
        asked = json.loads(body)
        if asked.get("model") != state.name:
            self.answer(404, {"error": {"message": "no such model"}})
            return
        with state.lock:
            state.completions += 1
        if state.due:
            self.fault()
        prompt, wanted = len(asked["prompt"]), int(asked["max_tokens"])
        usage = {"prompt_tokens": prompt, "completion_tokens": wanted}
        with state.lock:
            state.prompt += prompt
            state.generated += wanted
        if not asked.get("stream"):
            choice = {"index": 0, "text": "x" * wanted, "finish_reason": "length"}
            self.answer(200, {"choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for index in range(wanted):
            last = index + 1 == wanted
            choice = {"index": 0, "text": "x", "finish_reason": "length" if last else None}
            self.event({"choices": [choice], "usage": usage if last else None})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, value: object) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def fault(self) -> None:
        fault = self.state.fault
        if fault == "exits_while_serving":
            print("ERROR EngineCore encountered a fatal error.", flush=True)
            os._exit(0)
        if fault == "killed_while_serving":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hangs_while_serving":
            time.sleep(3600)
        if fault == "spins_while_serving":
            self.state.waiting = 1
            while True:
                pass
        if fault == "engine_dead":
            print("ERROR vllm.v1.engine.exceptions.EngineDeadError: EngineCore died", flush=True)


def stay(own_session: bool) -> None:
    """A descendant that ignores SIGTERM and would stay."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); "
    subprocess.Popen(
        [sys.executable, "-S", "-c", code + "time.sleep(3600)"],
        start_new_session=own_session,
        stdout=subprocess.PIPE,
    ).stdout.readline()  # type: ignore[union-attr]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    options, rest = parser.parse_known_args()
    told = Path(os.environ["STANDIN_FAULT"])
    fault, _, text = told.read_text().partition("\n") if told.exists() else ("", "", "")
    print(LOG.format(model=rest[1] if len(rest) > 1 else "", port=options.port).splitlines()[0], flush=True)
    print(LOG.splitlines()[1], flush=True)
    if fault == "dies":
        print(text, flush=True)
        sys.exit(1)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hangs":
        time.sleep(3600)
    if fault == "hangs_with_family":
        stay(own_session=False)
        stay(own_session=True)
        time.sleep(3600)
    if fault == "never_ready":
        while True:
            print("INFO still at it", flush=True)
            time.sleep(0.05)
    if fault == "computes_silently":
        end = time.process_time() + float(text)
        while time.process_time() < end:
            pass
    if fault in ("stubborn", "stubborn_family"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if fault in ("stubborn_family", "leaves_child"):
        stay(own_session=False)
    if fault == "leaves_escaped_child":
        stay(own_session=True)
    Handler.state = State(options.served_model_name, fault)
    ThreadingHTTPServer.request_queue_size = 256
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    for line in LOG.format(model=rest[1], port=options.port).splitlines()[2:]:
        print(line, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
