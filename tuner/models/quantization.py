"""How many bits a checkpoint stores for a weight, read from its `quantization_config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Stored:
    """Bits of one weight of the linear layers, bits that its scales add, and bits of the layers beside the
    routed experts where those are stored otherwise (None: the same).
    """

    method: str | None = None
    bits: float = 16.0
    scale_bits: float = 0.0
    dense_bits: float | None = None


def _grouped(bits: float, group: int, *, zero_points: bool) -> float:
    """Scale bits a weight: a 16-bit scale, and a zero point as wide as a weight, for each group."""
    return (16 + (bits if zero_points else 0)) / group if group > 0 else 0.0


def _awq_or_gptq(config: Mapping[str, Any], method: str) -> Stored:
    bits = float(config.get("bits", config.get("w_bit", 4)))
    group = int(config.get("group_size", config.get("q_group_size", 128)))
    skipped = str(config.get("modules_to_not_convert") or "")
    dense = 16.0 if "self_attn" in skipped and "shared_experts" in skipped else None
    return Stored(method, bits, _grouped(bits, group, zero_points=True), dense)


def _fp8(config: Mapping[str, Any], method: str) -> Stored:
    block = config.get("weight_block_size")
    scale = 32 / (int(block[0]) * int(block[1])) if isinstance(block, list | tuple) and len(block) == 2 else 0
    return Stored(method, 8.0, scale)


def _bitsandbytes(config: Mapping[str, Any], method: str) -> Stored:
    # NF4: one fp32 absmax a block of 64, itself in 8 bits where quantised twice
    if config.get("load_in_8bit"):
        return Stored(method, 8.0)
    return Stored(method, 4.0, 8 / 64 if config.get("bnb_4bit_use_double_quant") else 32 / 64)


def _mxfp4(config: Mapping[str, Any], method: str) -> Stored:
    # experts in 4 bits with one 8-bit scale for 32 weights; everything else stays in bf16
    return Stored(method, 4.0, 8 / 32, 16.0)


def _compressed_tensors(config: Mapping[str, Any], method: str) -> Stored:
    groups = config.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    if not weights:
        raise BadRequest(
            "config.json: compressed-tensors without config_groups that say the weights' bits",
            "take the folder's original config.json",
        )
    first = min(weights, key=lambda w: float(w.get("num_bits", 8)))
    bits = float(first.get("num_bits", 8))
    scale = 0.0
    if group_size := int(first.get("group_size") or 0):
        scale = _grouped(bits, group_size, zero_points=not first.get("symmetric", True))
        if str(first.get("type")) == "float" and bits == 4:
            scale = 8 / group_size  # NVFP4 and MXFP4 keep 8-bit scales
    ignored = " ".join(map(str, config.get("ignore") or ()))
    dense = 16.0 if "self_attn" in ignored or "re:.*attn" in ignored else None
    return Stored(method, bits, scale, dense)


def _modelopt(config: Mapping[str, Any], method: str) -> Stored:
    algorithm = str(config.get("quant_algo", config.get("quantization", {}))).upper()
    return Stored(method, 4.0, 8 / 16) if "FP4" in algorithm else Stored(method, 8.0)


_METHODS: Mapping[str, Callable[[Mapping[str, Any], str], Stored]] = {
    "awq": _awq_or_gptq,
    "awq_marlin": _awq_or_gptq,
    "gptq": _awq_or_gptq,
    "gptq_marlin": _awq_or_gptq,
    "auto-round": _awq_or_gptq,
    "auto_round": _awq_or_gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
}


def stored_bits(config: Mapping[str, Any] | None) -> Stored:
    """The bits of a checkpoint's weights; 16 where there is no quantization_config.

    Raises:
        BadRequest: a method whose bits are not known here, or a broken entry.
    """
    if not config:
        return Stored()
    if not isinstance(config, Mapping):
        raise BadRequest("config.json: quantization_config is not an object")
    method = str(config.get("quant_method", "")).lower()
    if not method and ("load_in_4bit" in config or "load_in_8bit" in config):
        method = "bitsandbytes"
    if method not in _METHODS:
        raise BadRequest(
            f"config.json: quantization method {method or '(none named)'!r} is not known",
            f"known: {', '.join(_METHODS)}",
        )
    try:
        stored = _METHODS[method](config, method)
        if not (1 <= stored.bits <= 32 and 0 <= stored.scale_bits <= 32):
            raise ValueError(f"{stored.bits:g} bits a weight")
        return stored
    except (TypeError, ValueError, ArithmeticError) as error:
        raise BadRequest(f"config.json: quantization_config of {method} cannot be read: {error}") from None
