"""Where a start-up stands: the lines that begin a phase, and what it means when the log ends there."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.engines.base import FailureKind
from tuner.engines.vllm.logs.probe import Probe, probe


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that begins a phase. `kind` and `mend` are for a log that says nothing more after it."""

    line: Probe
    phase: str
    kind: FailureKind = FailureKind.STARTUP_TIMEOUT
    mend: str = ""


READY = "ready"
LISTENING = "opening the HTTP server"
STARTING = "starting the API server"
CONFIGURING = "reading the model's configuration"
FORKING = "starting the engine process"
EARLY = frozenset({STARTING, CONFIGURING, FORKING})
"""Phases of which one is there in every log that was not cut at its beginning."""


def _mark(
    needle: str, regex: str, phase: str, mend: str = "", kind: FailureKind = FailureKind.STARTUP_TIMEOUT
) -> Mark:
    return Mark(probe(needle, regex), phase, kind, mend)


_PEERS = (
    "the processes wait for each other: check that every rank is alive and that the GPUs can reach each "
    "other "
    "(NCCL_DEBUG=INFO names the link; NCCL_P2P_DISABLE=1 or --disable-custom-all-reduce goes around it)"
)

MARKS = (
    _mark("version ", r"vLLM API server version|[█▀▄]\s+version \d", STARTING),
    _mark("esolved architecture", r"Resolved architecture", CONFIGURING),
    _mark("LLM engine (v", r"Initializing an? (?:V\d )?LLM engine", FORKING),
    _mark("world_size=", r"\bworld_size=(?:[2-9]|\d\d)", "connecting the workers", _PEERS, FailureKind.HUNG),
    _mark("world_size=", r"\bworld_size=1\b", "setting up the device"),
    _mark("using nccl", r"is using nccl==", "connecting the workers through NCCL", _PEERS, FailureKind.HUNG),
    _mark("ank ", r"rank \d+ in world size \d+ is assigned", "setting up the device"),
    _mark(
        "tarting to load model",
        r"[Ss]tarting to load model",
        "loading the weights",
        "reading the weights takes minutes from a network disk: give it more time, or copy the model to a "
        "local disk",
    ),
    _mark(
        "eights download",
        r"ime spent downloading weights",
        "loading the weights",
        "downloading takes as long as the network needs: fetch the model beforehand",
    ),
    _mark(
        "oading took ", r"Model loading took|oading model weights took", "compiling and profiling the model"
    ),
    _mark("torch.compile t", r"torch\.compile t(?:ook|akes)", "profiling the model after torch.compile"),
    _mark("rofiling/warmup run took", r"rofiling/warmup run took", "measuring the memory left for KV"),
    _mark("raph memory: ", r"Profiling CUDA graph memory", "measuring the memory of the CUDA graphs"),
    _mark("KV cache size: ", r"KV cache size: [\d,]+ tokens", "warming up and capturing CUDA graphs"),
    _mark(" blocks: ", r"# \w+ blocks: \d+, # CPU blocks", "warming up and capturing CUDA graphs"),
    _mark("apturing ", r"Capturing (?:the model for )?(?:CUDA|cuda)", "capturing CUDA graphs"),
    _mark("Graph capturing finished", r"Graph capturing finished", "finishing the engine"),
    _mark("init engine (profile", r"init engine \(profile", LISTENING),
    _mark("Starting vLLM", r"Starting vLLM (?:API )?server", LISTENING),
    _mark("aiting for application startup", r"Waiting for application startup", LISTENING),
    _mark("pplication startup complete", r"Application startup complete", READY),
    _mark("Uvicorn running on", r"Uvicorn running on", READY),
)

SERVING = probe(
    ("Avg prompt throughput: ", '" 200', "Processed prompts: "),
    r"Avg prompt throughput: |Processed prompts: "
    r"|\"(?:POST|GET) /(?:v1|metrics|health|generate|tokenize|ping)\S* HTTP/[\d.]+\" 200",
)
"""Lines that only a server that is up writes."""

STATISTICS = probe(
    "Avg prompt throughput: ",
    r"prompt throughput: (?P<prompt>[\d.]+) tokens/s, Avg generation throughput: (?P<output>[\d.]+) tokens/s"
    r", Running: (?P<running>\d+)(?: reqs)?,.*?(?:Waiting|Pending): (?P<waiting>\d+)",
)
"""What a server says every ten seconds of its requests."""

SHUTDOWN = probe(
    ("hutting down", "hutdown", "eceived", "TERM", "KeyboardInterrupt", "Gracefully stopping"),
    r"\bShutting down$|Shutdown initiated|\[shutdown\]|trigger received signal|Received exit signal"
    r"|[Rr]eceived (?:signal )?(?:SIG)?(?:TERM|INT)\b|SIGTERM received|Received SIGINT"
    r"|Waiting for application shutdown|(?:^|\s)KeyboardInterrupt(?::|$)|Gracefully stopping",
)
"""Lines of a server that was asked to stop."""


def phase_of(body: str) -> Mark | None:
    """The phase that this message begins, or None."""
    for mark in MARKS:
        if mark.line.search(body):
            return mark
    return None
