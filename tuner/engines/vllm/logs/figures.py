"""The figures of a log: memory, KV tokens, versions, flags, times of the phases."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.engines.vllm.logs.probe import Probe, probe
from tuner.spec import FlagValue

_NUMBER = r"(-?[\d.]+)"


@dataclass(slots=True)
class Figures:
    """What one start of a server has said so far."""

    kv_tokens: int | None = None
    weights_gib: float | None = None
    available_kv_gib: float | None = None
    graph_gib: float | None = None
    total_gib: float | None = None
    max_concurrency: float | None = None
    version: str | None = None
    block_size: int | None = None
    args: dict[str, FlagValue] = field(default_factory=dict)
    effective: dict[str, FlagValue] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    utilization: float | None = None
    longest_len: int | None = None
    needed_kv_gib: float | None = None
    silent_kernels: str = ""

    def gpu_memory_utilization(self) -> float | None:
        """The utilization in force, where the log tells it or vLLM's default is known."""
        for value in (self.utilization, self.args.get("gpu-memory-utilization")):
            if isinstance(value, int | float):
                return float(value)
        return None


def _kv_tokens(figures: Figures, match: re.Match[str]) -> None:
    tokens = int(match[1].replace(",", ""))
    figures.kv_tokens = tokens if figures.kv_tokens is None else min(tokens, figures.kv_tokens)


def _blocks(figures: Figures, match: re.Match[str]) -> None:
    figures.kv_tokens = int(match[1]) * (figures.block_size or 16)


def _weights(figures: Figures, match: re.Match[str]) -> None:
    figures.weights_gib = max(float(match[1]), figures.weights_gib or 0.0)


def _low(name: str) -> Callable[[Figures, re.Match[str]], None]:
    def store(figures: Figures, match: re.Match[str]) -> None:
        before = getattr(figures, name)
        value = float(match[1].replace(",", ""))
        setattr(figures, name, value if before is None else min(before, value))

    return store


def _set(name: str, kind: type = float) -> Callable[[Figures, re.Match[str]], None]:
    def store(figures: Figures, match: re.Match[str]) -> None:
        setattr(figures, name, kind(match[1]))

    return store


def _phase(name: str) -> Callable[[Figures, re.Match[str]], None]:
    def store(figures: Figures, match: re.Match[str]) -> None:
        figures.phases[name] = max(float(match[1]), figures.phases.get(name, 0.0))

    return store


def _effective(name: str, kind: Callable[[str], FlagValue] = int) -> Callable[[Figures, re.Match[str]], None]:
    def store(figures: Figures, match: re.Match[str]) -> None:
        figures.effective[name] = kind(match[1])

    return store


def _graph_profiling(figures: Figures, match: re.Match[str]) -> None:
    """vLLM says what utilization would have been equal without the graphs' memory: that gives the GPU's "
    "total."""
    figures.utilization = float(match[1])
    share = figures.utilization - float(match[2])
    # Four decimals of a share: the largest total that agrees, so that bounds stay on the safe side.
    if figures.total_gib is None and figures.graph_gib and share > 0.001:
        figures.total_gib = (figures.graph_gib + 0.005) / (share - 0.0001)


def _v0_budget(figures: Figures, match: re.Match[str]) -> None:
    figures.total_gib = float(match[1])
    figures.utilization = float(match[2])


def _args(figures: Figures, match: re.Match[str]) -> None:
    for name, value in _dictionary(match[1]).items():
        flag = name.replace("_", "-")
        figures.args[flag] = value
        if flag == "block-size" and isinstance(value, int):
            figures.block_size = value


def _dictionary(text: str) -> dict[str, FlagValue]:
    """The pairs of a printed dictionary, as many as are whole where the line was cut."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = {}
        for pair in re.finditer(
            r"'(\w+)': ('(?:[^'\\]|\\.)*'|-?[\d.]+(?:e-?\d+)?|True|False|None)(?=[,}])", text
        ):
            try:
                found[pair[1]] = ast.literal_eval(pair[2])
            except (ValueError, SyntaxError):
                continue
    if not isinstance(found, dict):
        return {}
    return {str(name): _plain(value) for name, value in found.items()}


def _plain(value: object) -> FlagValue:
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


_CONFIG_FLAGS = {
    "max_seq_len": "max-model-len",
    "tensor_parallel_size": "tensor-parallel-size",
    "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size",
    "quantization": "quantization",
    "enforce_eager": "enforce-eager",
    "kv_cache_dtype": "kv-cache-dtype",
    "enable_prefix_caching": "enable-prefix-caching",
    "enable_chunked_prefill": "enable-chunked-prefill",
    "load_format": "load-format",
    "max_cudagraph_capture_size": "max-cudagraph-capture-size",
}
_CONFIG_PAIR = re.compile(rf"\b'?({'|'.join(_CONFIG_FLAGS)})'?(?:=|: )([\w.+-]+)")
_CAPTURE_SIZES = re.compile(r"'?cudagraph_capture_sizes'?(?:=|: )\[([\d, ]+)\]")


def _config(figures: Figures, match: re.Match[str]) -> None:
    figures.version = match[1] or figures.version
    for name, text in _CONFIG_PAIR.findall(match[2]):
        words: dict[str, FlagValue] = {"True": True, "False": False, "None": None}
        figures.effective.setdefault(
            _CONFIG_FLAGS[name], words[text] if text in words else int(text) if text.isdigit() else text
        )
    if sizes := _CAPTURE_SIZES.search(match[2]):
        listed = tuple(int(size) for size in sizes[1].split(",") if size.strip())
        figures.effective.setdefault("cudagraph-capture-sizes", listed)


def _silent(figures: Figures, match: re.Match[str]) -> None:
    figures.silent_kernels = match[1]


@dataclass(frozen=True, slots=True)
class Figure:
    """A line that tells a figure, and where the figure goes."""

    line: Probe
    store: Callable[[Figures, re.Match[str]], None]


def _figure(needle: str, regex: str, store: Callable[[Figures, re.Match[str]], None]) -> Figure:
    return Figure(probe(needle, regex), store)


FIGURES = (
    _figure(
        "maximum model length is ",
        r"stimated maximum model length is ([\d,]*\d)",
        lambda figures, match: setattr(figures, "longest_len", int(match[1].replace(",", ""))),
    ),
    _figure("KV cache is needed", rf"{_NUMBER} GiB KV cache is needed", _set("needed_kv_gib")),
    _figure("KV cache size: ", r"KV cache size: ([\d,]*\d) tokens", _kv_tokens),
    _figure(
        "aximum concurrency for ",
        r"aximum concurrency for [\d,]+ tokens per request: ([\d.,]*\d)x",
        _low("max_concurrency"),
    ),
    _figure(
        " blocks: ", r"# (?:GPU|CUDA|cuda|CPU|XPU|rocm|HPU|TPU|npu) blocks: (\d+), # CPU blocks: \d+", _blocks
    ),
    _figure("oading took ", rf"Model loading took {_NUMBER} Gi?B", _weights),
    _figure(
        "oading took ",
        rf"Model loading took {_NUMBER} Gi?B(?: memory)? and {_NUMBER} s".replace(_NUMBER, r"-?[\d.]+", 1),
        _phase("model loading"),
    ),
    _figure("oading model weights took ", rf"oading model weights took {_NUMBER} Gi?B", _weights),
    _figure("model weights take ", rf"model weights take {_NUMBER} ?Gi?B", _weights),
    _figure(
        "vailable KV cache memory: ", rf"vailable KV cache memory: {_NUMBER} GiB", _low("available_kv_gib")
    ),
    _figure(
        "reserved for KV Cache is ", rf"reserved for KV Cache is {_NUMBER} ?GiB", _low("available_kv_gib")
    ),
    _figure(
        "instance can use total_gpu_memory",
        rf"total_gpu_memory \({_NUMBER} ?GiB\) x gpu_memory_utilization \({_NUMBER}\)",
        _v0_budget,
    ),
    _figure("raph memory: ", rf"Estimated CUDA graph memory: {_NUMBER} GiB", _set("graph_gib")),
    _figure(
        "Graph capturing finished",
        rf"Graph capturing finished in [\d.]+ secs?, took {_NUMBER} GiB",
        _set("graph_gib"),
    ),
    _figure(
        "Graph capturing finished", rf"Graph capturing finished in {_NUMBER} sec", _phase("graph capture")
    ),
    _figure(
        "equivalent to --gpu-memory-utilization=",
        rf"current --gpu-memory-utilization={_NUMBER} is equivalent to --gpu-memory-utilization=(\d\.\d+)",
        _graph_profiling,
    ),
    _figure("total capacity of ", rf"total capacity of {_NUMBER} GiB", _set("total_gib")),
    _figure("torch.compile t", rf"torch\.compile t(?:ook|akes) {_NUMBER} s", _phase("torch.compile")),
    _figure("oading weights took ", rf"oading weights took {_NUMBER} s", _phase("loading weights")),
    _figure("bytecode transform time", rf"ytecode transform time: {_NUMBER} s", _phase("dynamo")),
    _figure("rofiling/warmup run took", rf"rofiling/warmup run took {_NUMBER} s", _phase("profiling run")),
    _figure(
        "init engine (profile",
        rf"init engine \(profile, create kv cache, warmup model\) took {_NUMBER} s",
        _phase("init engine"),
    ),
    _figure("on-default args: ", r"on-default args: (\{.*)", _args),
    _figure(
        "LLM engine (v", r"Initializing an? (?:V\d )?LLM engine \(v([\w.+]+)\) with config: (.*)", _config
    ),
    _figure("API server version ", r"vLLM API server version v?(\d[\w.+]*)", _set("version", str)),
    _figure("  version ", r"[█▀▄]\s+version v?(\d[\w.+]*)", _set("version", str)),
    _figure(
        "max_num_batched_tokens=",
        r"prefill is enabled with max_num_batched_tokens=(\d+)",
        _effective("max-num-batched-tokens"),
    ),
    _figure("sing max model len ", r"sing max model len (\d+)", _effective("max-model-len")),
    _figure(
        "synchronous scheduling is ",
        r"synchronous scheduling is (enabled|disabled)",
        _effective("async-scheduling", lambda text: text == "enabled"),
    ),
    _figure(
        "KV cache block size to ",
        r"(?:[Ss]etting|set) (?:the )?KV cache block size to (\d+)",
        _effective("block-size"),
    ),
    _figure(
        " attention backend",
        r"Using (\w+) attention backend|Using Flash ?Attention",
        lambda figures, match: figures.effective.__setitem__("attention-backend", match[1] or "FLASH_ATTN"),
    ),
    _figure("MoE backend", r"Using (FlashInfer (?:CUTLASS|TRTLLM))[\w ]* MoE backend", _silent),
)


def take_figures(figures: Figures, body: str) -> None:
    """Note the figures that this message tells. A number that is none is left alone."""
    for figure in FIGURES:
        if (match := figure.line.search(body)) is not None:
            try:
                figure.store(figures, match)
            except ValueError:
                continue
