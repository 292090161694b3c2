"""Imports vLLM once and forks a server per request, so that a launch pays for no imports.

Runs in vLLM's own environment, of which it needs the standard library and vllm only:
`python preload.py [MODULE …]` imports all but the modules named, reads one JSON object a line from standard
input and answers on what was standard output.

    -> {"launch": 1, "argv": ["serve", MODEL, …], "log": PATH}    <- {"launch": 1, "pid": 123}
                                                                  <- {"launch": 1, "refused": "why"}
                                                                  <- {"ended": 123, "code": 0}
At the start it says {"ready": {"version", "seconds", "missing": […]}} or {"refused": "why", "module": NAME},
the module that stands in the way if there is one. It ends when its input closes, and its servers with it.

A fork can use the GPU only if CUDA has not been initialised before, and importing the wrong module does that;
so the imports are named here one by one, and CUDA is looked at after each.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import random
import select
import signal
import sys
import time
import traceback

ESSENTIAL = ("vllm", "vllm.entrypoints.cli.main")
MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.cli.openai",
    "vllm.entrypoints.cli.run_batch",
    "vllm.entrypoints.cli.collect_env",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.v1.engine.core",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "transformers",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.attention.backends.flash_attn",
)
_PR_SET_PDEATHSIG = 1
_TERM_GRACE_S = 5.0


class Refused(Exception):
    """Servers cannot be forked here; the message says why. Without `module` it may work."""

    def __init__(self, why: str, module: str | None = None) -> None:
        super().__init__(why)
        self.module = module


def cuda_initialised() -> bool:
    """Whether this process holds a CUDA context (then a fork cannot use the GPU)."""
    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_initialized())


def import_all(left_out: list[str]) -> list[str]:
    """Import the modules but those `left_out`; the ones that cannot be imported here are named.

    Raises:
        Refused: vLLM itself is missing, or an import has initialised CUDA.
    """
    missing = []
    for module in (*ESSENTIAL, *MODULES):
        if module in left_out:
            continue
        try:
            importlib.import_module(module)
        except Exception as error:
            if module in ESSENTIAL:
                raise Refused(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
            missing.append(module)
        if cuda_initialised():
            why = f"importing {module} initialises CUDA, and a fork could not use the GPU then"
            raise Refused(why, None if module in ESSENTIAL else module)
    return missing


def name_the_version() -> None:
    """vLLM's command asks for the version of a distribution named vllm; the CPU build's has another name."""
    asked = importlib.metadata.version
    try:
        asked("vllm")
    except importlib.metadata.PackageNotFoundError:
        known = sys.modules["vllm"].__version__
        patched = {"version": lambda name: known if name == "vllm" else asked(name)}
        vars(importlib.metadata).update(patched)


def become_server(argv: list[str], log: str, parent: int, keep_out: tuple[int, ...]) -> None:
    """In the fork: a session of its own, its outputs into the log, then what the `vllm` command does."""
    os.setsid()
    # SIGTERM, not SIGKILL: an API server that is killed outright leaves its engine behind
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor in keep_out:
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    random.seed()
    sys.argv = ["vllm", *argv]
    name_the_version()
    importlib.import_module("vllm.entrypoints.cli.main").main()


class Forker:
    """Serves launch requests until its input closes."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests, self.answers = requests, answers
        self.children: set[int] = set()

    def say(self, **message: object) -> None:
        try:
            os.write(self.answers, json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # nobody listens any more: the end of the input says so too

    def reap(self) -> None:
        """Tell of every server that has ended."""
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self.children:
                self.children.discard(pid)
                self.say(ended=pid, code=os.waitstatus_to_exitcode(status))

    def serve(self) -> tuple[list[str], str, int] | None:
        """Answer requests. Returns argv, log and parent in a fork, None at the end of input."""
        buffered = b""
        while True:
            self.reap()
            ready, _, _ = select.select([self.requests], [], [], 0.1)
            if not ready:
                continue
            added = os.read(self.requests, 65536)
            if not added:
                return None
            *lines, buffered = (buffered + added).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if cuda_initialised():
                    self.say(launch=request["launch"], refused="CUDA has become initialised in the launcher")
                    continue
                sys.stdout.flush()
                sys.stderr.flush()
                parent = os.getpid()
                pid = os.fork()
                if not pid:
                    return request["argv"], request["log"], parent
                self.children.add(pid)
                self.say(launch=request["launch"], pid=pid)

    def end(self) -> None:
        """SIGTERM to every server's group, SIGKILL after a grace."""
        deadline = time.monotonic() + _TERM_GRACE_S
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.children:
                try:
                    os.killpg(pid, number)
                except OSError:
                    pass
            while self.children and time.monotonic() < deadline:
                self.reap()
                time.sleep(0.05)


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]  # noqa: PTH100
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the tuner's to handle
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what the imports print goes into the launcher's log
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    forker = Forker(requests, answers)
    started = time.monotonic()
    try:
        missing = import_all(sys.argv[1:])
    except Refused as why:
        forker.say(refused=str(why), module=why.module)
        return
    gc.collect()
    gc.freeze()  # a fork that visits all that was imported would copy every page of it
    version = sys.modules["vllm"].__version__
    forker.say(ready={"version": version, "seconds": time.monotonic() - started, "missing": missing})
    launch = forker.serve()
    if launch is None:
        forker.end()
        return
    argv, log, parent = launch
    try:
        become_server(argv, log, parent, (requests, answers))
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
