"""Failures that a flag makes: unknown and unfit flags, tensor parallelism, attention backends."""

from __future__ import annotations

import re

from tuner.engines.base import Bound, FailureKind
from tuner.engines.vllm.logs.pattern import GENERAL, VAGUE, Explained, Found, pattern, quoted, says

_FLAG, _TP, _BACKEND = FailureKind.BAD_FLAG, FailureKind.TENSOR_PARALLEL, FailureKind.ATTENTION_BACKEND


def _unrecognized(found: Found) -> Explained:
    text = found.group("text")
    names = re.findall(r"--[\w-]+", text)
    mend = "leave it out: this vLLM does not know it"
    if "--swap-space" in names:
        mend = "swap-space is gone since vLLM 0.18: leave it out, or use kv-offloading-size"
    return Explained(f"unknown flag {', '.join(names) or text}", mend)


def _argument(found: Found) -> Explained:
    names, why = re.split(r"[/,\s]+", found.group("flag")), found.group("text")
    flag = next((name for name in names if name.startswith("--")), names[0])
    return Explained(f"{flag}: {why}", f"give {flag} a value that this vLLM accepts", _limits(flag, why))


def _limits(flag: str, why: str) -> tuple[Bound, ...]:
    """The bound that a message states: "less than or equal to 1", "must be >= 1"."""
    name = flag.lstrip("-").replace("_", "-")
    number = r"(-?\d+(?:\.\d+)?)"
    most = re.search(rf"(?:less than(?: or equal to)?|at most|<=|no more than) {number}", why)
    least = re.search(rf"(?:greater than(?: or equal to)?|at least|>=|no less than) {number}", why)
    low, high = (float(m[1]) if m else None for m in (least, most))
    return (Bound(name, min=low, max=high),) if name and (low is not None or high is not None) else ()


def _field(found: Found) -> Explained:
    """A pydantic error of one field; the field's name stands on the line before."""
    named = re.search(r"(?:^|\s)([a-z][\w.]*)\s*$", found.before)
    flag = named[1].split(".")[-1].replace("_", "-") if named else ""
    why = found.group("text")
    return Explained(
        f"{flag}: {why}" if flag else why,
        f"mend {flag or 'the flag'} as the message says",
        _limits(flag, why) if flag else (),
    )


def _batched_tokens(found: Found) -> Explained:
    least = found.number("least")
    return Explained(
        f"max-num-batched-tokens {found.group('tokens')} is less than "
        f"{found.group('what').replace('_', '-')} {found.group('least')}",
        f"raise max-num-batched-tokens to {found.group('least')} or lower "
        f"{found.group('what').replace('_', '-')}",
        (Bound("max-num-batched-tokens", min=least),) if least else (),
    )


def _utilization(found: Found) -> Explained:
    return Explained(
        f"gpu-memory-utilization {found.group('value')} is not in (0, 1]".replace("  ", " "),
        "set gpu-memory-utilization to a share of the GPU, such as 0.9",
        (Bound("gpu-memory-utilization", max=1.0),),
    )


def _heads(found: Found) -> Explained:
    heads, size = found.number("heads"), found.number("size")
    choices = [n for n in range(1, 65) if heads and heads % n == 0 and n <= (size or 64)]
    mend = (
        f"set tensor-parallel-size to one of {', '.join(map(str, choices))}"
        if choices
        else "lower tensor-parallel-size"
    )
    return Explained(
        f"{found.group('heads')} attention heads cannot be divided by tensor-parallel-size "
        f"{found.group('size')}",
        mend,
    )


def _too_few_gpus(found: Found) -> Explained:
    there = found.number("there")
    return Explained(
        f"{found.group('size') or 'more'} GPUs are asked for and {found.group('there') or 'fewer'} are there",
        f"lower tensor-parallel-size to {found.group('there')} or less"
        if there
        else "lower tensor-parallel-size",
        (Bound("tensor-parallel-size", max=there),) if there else (),
    )


def _no_backend(found: Found) -> Explained:
    size = found.number("block")
    reasons = found.group("reasons")
    # Every backend refuses the block size: then it is to blame, and no backend takes less than 16.
    parts = re.findall(r"\[([^\]]*)\]", reasons)
    if size is not None and parts and all("block_size" in part for part in parts):
        return Explained(
            f"no attention backend takes block-size {size:.0f}",
            "set block-size to a multiple of 16 (64 or 128 for some backends), or leave it to vLLM",
            (Bound("block-size", min=16.0),) if size < 16 else (),
        )
    kv_dtype = found.group("kv")
    return Explained(
        f"no attention backend takes block-size {found.group('block')}, kv-cache-dtype {kv_dtype}"
        + (f": {reasons}" if reasons else ""),
        "leave block-size, kv-cache-dtype and attention-backend to vLLM",
    )


_BACKEND_MEND = "leave attention-backend (VLLM_ATTENTION_BACKEND), block-size and kv-cache-dtype to vLLM"
_TP_MEND = "lower tensor-parallel-size"

PATTERNS = (
    pattern(
        _FLAG,
        "unrecognized arguments",
        r"error: unrecognized arguments:? (?P<text>.+)",
        _unrecognized,
        always=True,
    ),
    pattern(
        _FLAG,
        "error: argument ",
        r"error: argument (?P<flag>-[\w/ ,-]+?): (?P<text>.+)",
        _argument,
        always=True,
    ),
    pattern(
        _FLAG,
        ("error: the following arguments", "error: ambiguous option", "error: one of the arguments"),
        r"error: (?P<text>(?:the following arguments are required|ambiguous option|one of the "
        r"arguments).+)",
        quoted("mend the command line"),
        always=True,
    ),
    pattern(
        _FLAG,
        ("ot be smaller than", "greater than or equal to max", "is smaller than max"),
        r"max_num_batched_tokens \((?P<tokens>\d+)\) (?:must be greater than or equal to|is smaller than) "
        r"(?P<what>max_\w+) \((?P<least>\d+)\)",
        _batched_tokens,
    ),
    pattern(
        _FLAG,
        ("utilization must be", "gpu_memory_utilization"),
        r"(?:GPU memory utilization|gpu_memory_utilization) must be (?:less than|in"
        r"|between)[^.]{0,20}(?:\.0)?[^.]{0,20}?"
        r"(?:\.?\s*[Gg]ot (?P<value>[\d.]+\d))?",
        _utilization,
    ),
    pattern(
        _TP,
        "must be divisible by",
        r"[Tt]otal number of attention heads \((?P<heads>\d+)\) must be divisible by (?:the )?tensor[_ "
        r"]parallel[_ ]size \((?P<size>\d+)\)",
        _heads,
    ),
    pattern(
        _TP,
        "larger than the number of available GPUs",
        r"(?:World size|[Tt]ensor parallel size) \((?P<size>\d+)\) (?:is|cannot be) larger than the number "
        r"of available GPUs \((?P<there>\d+)\)",
        _too_few_gpus,
    ),
    pattern(
        _TP,
        ("invalid device ordinal", "world_size (", "out of bounds", "device_count", "placement group"),
        r"(?:ensure that )?world_size \(\d+\) is (?:less than than max local gpu count|not equal to tensor)"
        r"|CUDA error: invalid device ordinal|[Ll]ocal rank \d+ is out of bounds|local rank \d+ must be"
        r"|required GPUs exceeds the total number of available GPUs|(?:can't be|cannot be) "
        r"allocated.{0,40}placement group",
        says(
            "more GPUs are asked for than are there",
            "lower tensor-parallel-size, or show vLLM more GPUs (CUDA_VISIBLE_DEVICES)",
        ),
    ),
    pattern(
        _TP,
        ("not divisible by", "not aligned with the quantized", "must be divisible by"),
        r"(?P<text>(?:[^.:]{0,80}(?:in|out)put_(?:partition_)?size\w*[^.:]{0,60} = \d+ is not divisible by "
        r"(?:weight quantization block|min_thread)_[nk] = \d+"
        r"|The (?:in|out)put size is not aligned with the quantized weight shape[^\n]{0,100}"
        r"|[Tt]otal number of [\w ]{2,40}\(\d+\) must be divisible by [\w ]*parallel[_ ]size \(\d+\)"
        r"|\d+ is not divisible by \d+))",
        quoted(_TP_MEND, "tensor parallelism does not divide the model: "),
    ),
    pattern(
        _BACKEND,
        "alid attention backend",
        r"No valid attention backend found for \w+(?: with "
        r"AttentionSelectorConfig\((?:.*?kv_cache_dtype=(?P<kv>\w+))?"
        r"(?:.*?block_size=(?P<block>\d+))?.*?\)\.)?(?:.*?Reasons: (?P<reasons>\{.*))?",
        _no_backend,
    ),
    pattern(
        _BACKEND,
        ("elected backend", "attention backend", "ttention backend"),
        r"(?P<text>Selected backend \S+ is not valid for this configuration\.?[^\n]*|Invalid attention "
        r"backend[^\n]*)",
        quoted(_BACKEND_MEND),
    ),
    pattern(
        _BACKEND,
        ("ead size", "head_size"),
        r"(?P<text>[Hh]ead size \d+ is not supported by \w+[^\n]*|This flash attention build does not "
        r"support[^\n]*"
        r"|FlashAttention does not support head_?size[^\n]*)",
        quoted(_BACKEND_MEND),
    ),
    pattern(
        _BACKEND,
        "KV cache is not supported",
        r"(?P<text>\w+ KV cache is not supported with [^\n]*)",
        quoted("leave kv-cache-dtype to vLLM, or take another that the message names"),
    ),
    pattern(
        _FLAG,
        "does not support float16",
        r"(?P<text>The model type \S+ does not support float16[^\n]*)",
        quoted("leave dtype to vLLM, or set it to bfloat16"),
    ),
    pattern(
        _BACKEND,
        ("lock size", "block_size", "block size"),
        r"(?P<text>No common block size for [^\n]*|[^.\n]{0,60}(?:block[_ ]size|Block size)[^.\n]{0,40}"
        r"(?:not supported|must be (?:a multiple|divisible|one of)|is not divisible)[^\n]*)",
        quoted("set block-size to a multiple of 16 (64 or 128 for some backends), or leave it to vLLM"),
    ),
    pattern(
        _BACKEND,
        ("FlashAttention", "FlashMLA", "FlashInfer", "flash_attn", "FLASH", "MLA"),
        r"(?P<text>FlashAttention only supports [^\n]*|FlashAttention-?3? (?:is not supported"
        r"|requires)[^\n]*"
        r"|FlashMLA[^\n]{0,80} (?:is )?not supported[^\n]*|\w*FLASH\w* (?:backend )?(?:is not supported"
        r"|requires)[^\n]*"
        r"|(?:FlashInfer|TRITON|CUTLASS)\w* (?:backend |attention )?(?:does not support|is not "
        r"supported)[^\n]*)",
        quoted(_BACKEND_MEND),
        rank=GENERAL,
    ),
    pattern(
        _FLAG,
        "oes not match the quantization",
        r"(?P<text>Quantization method specified in the model config[^\n]*)",
        quoted("leave quantization to vLLM"),
    ),
    pattern(
        _FLAG,
        "not supported for quantization method",
        r"(?P<text>torch\.\w+ is not supported for quantization method [^\n]*)",
        quoted("set dtype to one that the message names"),
    ),
    pattern(
        _FLAG,
        "[type=",
        r"(?P<text>(?:Input should be|Unexpected keyword|Extra inputs|Field required)[^\[]*)\[type=",
        _field,
        rank=GENERAL,
    ),
    pattern(
        _FLAG,
        "Value error, ",
        r"Value error, (?P<text>.+?)(?: \[type=|$)",
        quoted("mend the flag that the message names"),
        rank=GENERAL,
    ),
    pattern(
        _FLAG,
        "validation error",
        r"\d+ validation errors? for (?P<what>\w*(?:Config|Args))\b",
        says("a flag of {what} is refused", "mend the flag that the log names"),
        rank=VAGUE,
    ),
)
