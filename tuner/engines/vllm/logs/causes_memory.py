"""Failures of GPU and host memory."""

from __future__ import annotations

import math

from tuner.engines.base import Bound, FailureKind
from tuner.engines.vllm.logs.pattern import EXACT, GENERAL, Explained, Found, pattern, quoted, says

_GIB = {"GIB": 1.0, "MIB": 1 / 1024, "GB": 1.0, "MB": 1 / 1024, "KIB": 1 / 1024**2, "BYTES": 1 / 1024**3}


def _kv_memory(found: Found) -> Explained:
    figures = found.figures
    used, left, total = figures.gpu_memory_utilization(), figures.available_kv_gib, figures.total_gib
    cause = "no memory is left for the KV cache after weights and activations"
    if left is not None:
        cause += f" ({left:g} GiB)"
    if used is not None:
        cause += f" at gpu-memory-utilization {used:g}"
    bounds: tuple[Bound, ...] = ()
    if used is not None and used < 1.0:
        least = used + 0.001
        if left is not None and left < 0 and total:
            least = max(least, used - left / total)
        bounds = (Bound("gpu-memory-utilization", min=math.ceil(round(least * 1e4, 6)) / 1e4),)
        if bounds[0].min is not None and bounds[0].min > 1.0:
            bounds = ()
    return Explained(
        cause,
        "raise gpu-memory-utilization, lower max-num-batched-tokens or max-num-seqs, spread the model over "
        "more GPUs "
        "(tensor-parallel-size), or take a smaller or quantised model",
        bounds,
    )


def _model_len(found: Found) -> Explained:
    figures = found.figures
    wanted, needed = found.number("wanted"), found.number("needed") or figures.needed_kv_gib
    left = found.number("left")
    left = figures.available_kv_gib if left is None else left
    longest = found.number("longest") or figures.longest_len
    if longest is None and wanted and needed and left is not None:
        # KV grows at most in proportion to the length: the share of the memory bounds it from above.
        longest = math.ceil(wanted * (left + 0.005) / max(needed - 0.05, 0.01))
        longest = longest if longest < wanted else None
    cause = f"max-model-len {wanted:.0f} needs" if wanted else "one request of max-model-len needs"
    cause += f" {needed:g} GiB of KV cache" if needed is not None else " more KV cache than there is"
    if left is not None:
        cause += f" and {left:g} GiB are there"
    mend = f"lower max-model-len to {longest:.0f} or less" if longest else "lower max-model-len"
    bounds = (Bound("max-model-len", max=longest),) if longest else ()
    return Explained(cause, f"{mend}, or raise gpu-memory-utilization", bounds)


def _stored_len(found: Found) -> Explained:
    wanted, longest = found.number("wanted"), found.number("longest")
    return Explained(
        f"max-model-len {found.group('wanted')} is more than the {found.group('longest')} tokens that the "
        f"KV cache holds",
        f"lower max-model-len to {found.group('longest')} or less, or raise gpu-memory-utilization",
        (Bound("max-model-len", max=longest),) if longest and wanted else (),
    )


def _derived_len(found: Found) -> Explained:
    longest = found.number("longest")
    return Explained(
        f"max-model-len {found.group('wanted')} is longer than the model's own "
        f"{found.group('longest') or 'length'}",
        f"set max-model-len to {found.group('longest') or 'what the model was made for'} or less",
        (Bound("max-model-len", max=longest),) if longest else (),
    )


def _gpu_busy(found: Found) -> Explained:
    free, total = found.number("free"), found.number("total")
    wanted = found.group("share")
    bounds: tuple[Bound, ...] = ()
    mend = "stop the process that holds the GPU, or lower gpu-memory-utilization"
    if free is not None and total:
        most = math.floor(free / total * 1e4) / 1e4
        bounds = (Bound("gpu-memory-utilization", max=most),)
        mend = f"stop the process that holds the GPU, or set gpu-memory-utilization to {most:g} or less"
    return Explained(
        f"only {found.group('free')} of {found.group('total')} GiB of the GPU are free at the start"
        + (f", and gpu-memory-utilization {wanted} asks for {found.group('asked')} GiB" if wanted else ""),
        mend,
        bounds,
    )


def _mamba(found: Found) -> Explained:
    most = found.number("blocks")
    return Explained(
        f"max-num-seqs {found.group('seqs')} is more than the {found.group('blocks')} state blocks that fit",
        f"lower max-num-seqs to {found.group('blocks')} or less, or raise gpu-memory-utilization",
        (Bound("max-num-seqs", max=most),) if most else (),
    )


def _cpu_busy(found: Found) -> Explained:
    explained = _gpu_busy(found)
    share = explained.bounds[0].max if explained.bounds else None
    return Explained(
        explained.cause.replace("of the GPU", "of the host's memory"),
        f"set gpu-memory-utilization to {share:g} or less" if share else "lower gpu-memory-utilization",
        explained.bounds,
    )


def _sampler(found: Found) -> Explained:
    dummies = found.number("dummies")
    return Explained(
        f"out of GPU memory while the sampler was warmed up with {found.group('dummies')} requests",
        "lower max-num-seqs or gpu-memory-utilization",
        (Bound("max-num-seqs", max=dummies - 1),) if dummies and dummies > 1 else (),
    )


_OOM_MENDS = {
    "loading the weights": "the weights do not fit: spread them over more GPUs (tensor-parallel-size), or "
    "take a "
    "quantised model",
    "capturing CUDA graphs": "lower gpu-memory-utilization, max-num-seqs or max-cudagraph-capture-size",
    "warming up and capturing CUDA graphs": "lower gpu-memory-utilization, max-num-seqs or "
    "max-cudagraph-capture-size",
    "compiling and profiling the model": "lower max-num-batched-tokens or max-num-seqs, or spread the "
    "model over more "
    "GPUs (tensor-parallel-size)",
}


def _oom(found: Found) -> Explained:
    when = "while serving" if found.served else f"while {found.phase}" if found.phase else "at the start"
    wanted, total, free = found.group("wanted"), found.group("total"), found.group("free")
    cause = f"out of GPU memory {when}"
    if wanted:
        cause += f": {wanted} wanted"
        if total and free:
            cause += f", {free} free of {total}"
    mend = "lower gpu-memory-utilization, max-num-batched-tokens or max-num-seqs"
    return Explained(cause, mend if found.served else _OOM_MENDS.get(found.phase, mend))


_KV, _LEN = FailureKind.KV_MEMORY, FailureKind.MODEL_LEN
_OOM = FailureKind.OOM
_HOST = FailureKind.HOST_MEMORY
_HOST_MEND = (
    "give the host (or the container) more memory, load fewer processes at a time, or lower "
    "kv-offloading-size, "
    "swap-space and cpu-offload-gb"
)

PATTERNS = (
    pattern(
        _LEN,
        "To serve at least one request",
        r"To serve at least one request(?: with the models?(?:'s|s's)? max(?:imum)? (?:seq|model|sequence) "
        r"len(?:gth)?\s*\((?P<wanted>[\d,]+)\))?(?:,?\s*\(?(?P<needed>-?[\d.]+) GiB KV cache\)? is needed)?"
        r"(?:.{0,40}?larger than the available KV cache memory\s*\((?P<left>-?[\d.]+) GiB\))?"
        r"(?:.{0,200}?estimated maximum model length is (?P<longest>[\d,]*\d))?",
        _model_len,
        wrapped=True,
    ),
    pattern(
        _LEN,
        "stored in KV cache",
        r"max (?:seq|model) len \((?P<wanted>\d+)\) is larger than the maximum number of tokens that can "
        r"be stored in "
        r"KV cache \((?P<longest>\d+)\)",
        _stored_len,
    ),
    pattern(
        _LEN,
        ("greater than the derived", "larger than the derived", "exceeds the derived"),
        r"max_model_len \((?P<wanted>\d+)\) (?:is (?:greater|larger) than|exceeds) the derived "
        r"max_model_len "
        r"\((?:[a-z_]+=)?(?P<longest>\d+)?",
        _derived_len,
    ),
    pattern(
        _LEN,
        "max model length",
        r"[Ee]stimated maximum model length is (?P<longest>[\d,]+)",
        _model_len,
        rank=GENERAL,
    ),
    pattern(
        _KV,
        ("memory for the cache blocks", "memory for cache blocks"),
        r"No available memory for (?:the )?cache blocks",
        _kv_memory,
    ),
    pattern(
        _KV,
        ("num_gpu_blocks", "KV cache"),
        r"(?:num_gpu_blocks must be|No available (?:KV cache|kv cache) memory|Not enough (?:memory|KV "
        r"cache) "
        r"(?:space |memory )?for (?:the )?KV cache|requires at least \d+ KV cache blocks?)",
        _kv_memory,
        rank=GENERAL,
    ),
    pattern(
        _KV,
        "cache blocks",
        r"max_num_seqs \((?P<seqs>\d+)\) exceeds (?:the )?available \w+ cache blocks \((?P<blocks>\d+)\)",
        _mamba,
    ),
    pattern(
        FailureKind.GPU_BUSY,
        "emory on device",
        r"[Ff]ree memory on device\s*(?:\S+ )?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less"
        r"(?: than desired \w+ memory utilization \((?P<share>[\d.]+), (?P<asked>[\d.]+) GiB\))?",
        _gpu_busy,
        wrapped=True,
    ),
    pattern(
        _HOST,
        "CPU memory utilization",
        r"\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\)(?: on startup)? is less than desired CPU memory "
        r"utilization "
        r"\((?P<share>[\d.]+), (?P<asked>[\d.]+) GiB\)",
        _cpu_busy,
    ),
    pattern(
        FailureKind.GPU_BUSY,
        ("busy or unavailable", "DevicesUnavailable"),
        r"CUDA-capable device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable",
        says("the GPU is held by another process", "stop the process that holds the GPU, or wait for it"),
    ),
    pattern(
        FailureKind.MEMORY_PROFILING,
        "rror in memory profiling",
        r"Error in memory profiling\.(?: Initial free memory:? (?P<was>[\d.]+(?: ?GiB)?)[^,]*,? current "
        r"free memory:?"
        r" (?P<now>[\d.]+(?: ?GiB)?))?",
        says(
            "another process gave GPU memory back while this one measured it",
            "wait until the GPU's memory has settled and start again",
        ),
        wrapped=True,
    ),
    pattern(
        _OOM,
        "warming up",
        r"out of memory occurred when warming up sampler with (?P<dummies>\d+) dummy requests",
        _sampler,
        rank=EXACT,
    ),
    pattern(
        _HOST,
        ("OutOfMemoryError", "running low on memory"),
        r"ray\.exceptions\.OutOfMemoryError|due to the node running low on memory",
        says("Ray killed a worker because the host ran low on memory", _HOST_MEND),
    ),
    pattern(
        _OOM,
        ("out of memory", "OutOfMemoryError", "ErrorMemoryAllocation", "ALLOC_FAILED"),
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError: )?(?:CUDA|HIP|XPU|NPU) out of memory\.?"
        r"(?:\s*Tried to allocate (?P<wanted>[\d.]+ [KMG]i?B))?"
        r"(?:.{0,80}?total capacity of (?P<total>[\d.]+ [KMG]i?B) of which (?P<free>[\d.]+ (?:[KMG]i?B"
        r"|bytes)) is free)?"
        r"|(?:CUDA|HIP) (?:driver )?error:? (?:\d+ )?\(?out of memory|torch\.(?:cuda\.)?OutOfMemoryError"
        r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED"
        r"|[Cc]uda (?:failure|error) \d* ?'?out of memory|unhandled cuda error.{0,60}out of memory",
        _oom,
        wrapped=True,
    ),
    pattern(
        _HOST,
        ("can't allocate memory", "annot allocate memory", "bad_alloc", "MemoryError", "ot enough memory"),
        r"DefaultCPUAllocator: (?:can't|not enough)|[Cc]annot allocate memory|std::bad_alloc"
        r"|(?<![\w.])MemoryError(?::|$)"
        r"|DefaultCPUAllocator: not enough memory",
        says("the host ran out of memory", _HOST_MEND),
    ),
    pattern(
        _HOST,
        ("Out of memory: Kill", "oom-kill", "OOMKilled", "Memory cgroup out of memory", "oom_reaper"),
        r"Out of memory: Killed? process|oom-kill|OOMKilled|Memory cgroup out of memory|oom_reaper",
        says("the kernel killed a process because the host ran out of memory", _HOST_MEND),
        death=True,
        quiet=True,
        always=True,
    ),
    pattern(
        _HOST,
        ("CPU KV", "KVCACHE_SPACE", "CPU memory"),
        r"(?P<text>(?:[Nn]ot enough|[Ii]nsufficient)[^.]{0,80}(?:CPU|host) memory[^.]*"
        r"|VLLM_CPU_KVCACHE_SPACE[^.]*"
        r"(?:too large|not enough|exceed)[^.]*|[Tt]oo large swap space[^\n]*)",
        quoted("lower VLLM_CPU_KVCACHE_SPACE, or give the host more memory"),
    ),
    pattern(
        _HOST,
        "wap space",
        r"(?P<text>[Tt]oo large swap space[^\n]*)",
        quoted("lower swap-space or kv-offloading-size"),
    ),
)
