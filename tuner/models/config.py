"""ModelShape from a Hugging Face config.json: Llama-like, DeepSeek and Kimi, mixtures of experts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.errors import BadRequest
from tuner.models.quantization import stored_bits
from tuner.models.shape import Experts, Mla, ModelShape

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "language_model")
# State that grows otherwise than a paged KV cache: its memory arithmetic is not the one here.
_FOREIGN = ("linear_attn_config", "ssm_cfg", "mamba_d_state", "mamba_num_heads", "linear_num_key_heads")
_MOST, _MOST_LAYERS = 10**9, 10_000
_MAX_LEN = ("max_position_embeddings", "max_sequence_length", "n_positions", "seq_length", "model_max_length")


def _whole(value: Any) -> int | None:
    """A whole number; of a list (per layer, per codebook) the largest."""
    if isinstance(value, list | tuple):
        found = [_whole(v) for v in value]
        numbers = [n for n in found if n is not None]
        return max(numbers) if numbers and len(numbers) == len(found) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else None


class _Fields:
    """Reads numbers by any of their names, and says which one is missing or odd."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def find(self, *names: str) -> Any:
        for field in names:
            value = self.config.get(field)
            if value is not None:
                return value
        return None

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        value = self.find(*names)
        if value is None:
            if default is not None:
                return default
            raise self.bad(f"{names[0]} is missing")
        found = _whole(value)
        if found is None or not least <= found <= _MOST:
            raise self.bad(f"{names[0]} is {repr(value)[:40]}, not a whole number of at least {least}")
        return found

    def bad(self, what: str) -> BadRequest:
        kind = str(self.config.get("model_type") or self.config.get("architectures") or "unknown")
        return BadRequest(
            f"config.json of {self.name} (model_type {' '.join(kind.split())[:60]}): {what}",
            "mend it, or give another model: decoder-only, with a paged KV cache",
        )


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The language model's own config inside a multimodal one, and the whole."""
    for part in _TEXT_PARTS:
        inner = config.get(part)
        if isinstance(inner, Mapping) and ("hidden_size" in inner or "n_embd" in inner or "dim" in inner):
            return inner, config
    return config, config


def _mla(fields: _Fields) -> Mla | None:
    if fields.find("kv_lora_rank") is None:
        return None
    return Mla(
        kv_lora_rank=fields.integer("kv_lora_rank"),
        rope_dim=fields.integer("qk_rope_head_dim"),
        nope_dim=fields.integer("qk_nope_head_dim"),
        v_dim=fields.integer("v_head_dim"),
        q_lora_rank=fields.integer("q_lora_rank", default=0, least=0) or None,
    )


def _experts(fields: _Fields, layers: int) -> Experts | None:
    routed = fields.integer(
        "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", default=0, least=0
    )
    if routed <= 1:
        return None
    intermediate = fields.integer(
        "moe_intermediate_size", "expert_intermediate_size", "ffn_hidden_size", "intermediate_size"
    )
    shared = fields.integer(
        "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0, least=0
    )
    own = fields.integer("shared_expert_intermediate_size", "shared_intermediate_size", default=0, least=0)
    if not shared and own:
        shared = max(1, round(own / intermediate))
    return Experts(
        routed=routed,
        active=fields.integer("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"),
        shared=shared,
        intermediate=intermediate,
        dense_layers=_dense_layers(fields, layers),
    )


def _dense_layers(fields: _Fields, layers: int) -> int:
    first = fields.integer("first_k_dense_replace", default=0, least=0)
    step = fields.integer("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", default=1)
    named = fields.find("mlp_only_layers")
    dense = {i for i in range(layers) if i < first or (step > 1 and (i + 1) % step)}
    if isinstance(named, list):
        dense |= {i for i in map(_whole, named) if i is not None and i < layers}
    return min(layers, len(dense))


def _max_model_len(fields: _Fields) -> int:
    """The longest sequence that vLLM derives: positions, stretched by rope scaling where that says so
    (vllm/config/model.py: yarn counts from the original length; llama3, mrope and su stretch nothing).
    """
    length = fields.integer(*_MAX_LEN, default=2048)
    scaling = fields.find("rope_scaling", "rope_parameters")
    if not isinstance(scaling, Mapping):
        return length
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    factor = scaling.get("factor")
    if (
        not isinstance(factor, int | float)
        or not 1 <= factor <= 10**6
        or kind in ("default", "llama3", "mrope", "su", "longrope")
    ):
        return length
    if kind in ("yarn", "deepseek_yarn"):
        original = scaling.get("original_max_position_embeddings", length)
        return max(length, int((_whole(original) or 0) * factor))
    return int(length * factor)


def shape_from_config(config: Mapping[str, Any], name: str, path: str | None = None) -> ModelShape:
    """The shape of a model from its config.json as a mapping; `weight_bytes` stays 0 (not in a config).

    Multimodal models are read by their language part (`text_config`).

    Raises:
        BadRequest: fields missing or odd, or an architecture whose memory is not a paged KV cache alone.
    """
    if not isinstance(config, Mapping):
        raise BadRequest(f"config.json of {name} is not an object")
    inner, outer = _text_part(config)
    fields = _Fields(inner, name)
    foreign = [f for f in _FOREIGN if inner.get(f) is not None]
    kinds = str(inner.get("layer_types"))
    if foreign or "linear" in kinds or "mamba" in kinds:
        raise fields.bad("linear-attention and state-space layers are not known here")
    if outer.get("is_encoder_decoder"):
        raise fields.bad("encoder-decoder models are not known here")
    hidden = fields.integer("hidden_size", "n_embd", "d_model", "dim")
    layers = fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if layers > _MOST_LAYERS:
        raise fields.bad(f"num_hidden_layers is {layers}")
    heads = fields.integer("num_attention_heads", "n_head", "n_heads")
    mla = _mla(fields)
    head_dim = (
        mla.nope_dim + mla.rope_dim if mla else fields.integer("head_dim", default=max(1, hidden // heads))
    )
    kv_heads = (
        heads if mla else fields.integer("num_key_value_heads", "num_kv_heads", "n_kv_heads", default=heads)
    )
    stored = stored_bits(outer.get("quantization_config") or inner.get("quantization_config"))
    tied = inner.get("tie_word_embeddings", outer.get("tie_word_embeddings"))
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=fields.integer("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
        vocab=fields.integer("vocab_size"),
        max_model_len=_max_model_len(fields),
        weight_bits=stored.bits,
        quantization=stored.method,
        mla=mla,
        experts=_experts(fields, layers),
        tied_embeddings=bool(tied) if tied is not None else _tied_by_default(inner),
        path=path,
        scale_bits=stored.scale_bits,
        dense_bits=stored.dense_bits,
    )


def _tied_by_default(config: Mapping[str, Any]) -> bool:
    """Gemma's and Cohere's config classes tie the embeddings where config.json does not say."""
    return str(config.get("model_type", "")).startswith(("gemma", "cohere"))
