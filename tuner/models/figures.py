"""Bytes and FLOPs of a model, all computed from its shape.

One multiply-add counts as two FLOPs. Norms count in bytes, not in FLOPs; biases are left out.
Formulae: the layers of Llama (grouped-query attention), DeepSeek-V2 (multi-head latent attention, arXiv
2405.04434) and their mixtures of experts, as vLLM's model files build them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tuner.models.shape import ModelShape

_BF16_BITS = 16.0


@dataclass(frozen=True, slots=True)
class Linears:
    """Weights of the linear layers, in numbers of weights over all layers.

    `sharded` are split over the tensor-parallel ranks, `replicated` lie on every rank (the low-rank
    down-projections of MLA), `router` stays in 16 bits everywhere, `expert` is one routed expert over all its
    layers, `norms` are vectors.
    """

    sharded: float
    replicated: float
    kv: float
    router: float
    expert: float
    norms: float


@lru_cache(maxsize=256)
def linears(shape: ModelShape) -> Linears:
    """Counts the weights of the shape's linear layers."""
    hidden, layers = shape.hidden, shape.layers
    kv = 0.0
    if shape.mla is not None:
        mla = shape.mla
        query_dim = shape.heads * (mla.nope_dim + mla.rope_dim)
        down = hidden * (mla.kv_lora_rank + mla.rope_dim)
        if mla.q_lora_rank:
            down += hidden * mla.q_lora_rank
            query = mla.q_lora_rank * query_dim
        else:
            query = hidden * query_dim
        up = mla.kv_lora_rank * shape.heads * (mla.nope_dim + mla.v_dim)
        attention = query + up + shape.heads * mla.v_dim * hidden
    else:
        down = 0
        attention = 2 * hidden * shape.heads * shape.head_dim
        kv = 2.0 * hidden * shape.kv_heads * shape.head_dim
    experts = shape.experts
    moe_layers = max(0, layers - experts.dense_layers) if experts else 0
    mlp = 3.0 * hidden * shape.intermediate * (layers - moe_layers)
    router = expert = 0.0
    if experts:
        mlp += 3.0 * hidden * experts.intermediate * experts.shared * moe_layers
        router = float(hidden * experts.routed * moe_layers)
        expert = 3.0 * hidden * experts.intermediate * moe_layers
    return Linears(
        sharded=attention * layers + mlp,
        replicated=float(down * layers),
        kv=kv * layers,
        router=router,
        expert=expert,
        norms=float(hidden * (2 * layers + 1)),
    )


def _routed(shape: ModelShape) -> int:
    return shape.experts.routed if shape.experts else 0


def _active(shape: ModelShape) -> int:
    return shape.experts.active if shape.experts else 0


def _weight_bytes_each(shape: ModelShape) -> float:
    """Bytes of one stored weight of the quantised layers, its share of the scales included."""
    return (shape.weight_bits + shape.scale_bits) / 8


def _dense_bytes_each(shape: ModelShape) -> float:
    return shape.dense_bits / 8 if shape.dense_bits is not None else _weight_bytes_each(shape)


def _embedding_bytes(shape: ModelShape) -> float:
    """The input embedding, kept in 16 bits by every common quantisation."""
    return shape.vocab * shape.hidden * max(shape.dtype_bytes, 1)


def _computed_bytes(shape: ModelShape, tp: int = 1) -> float:
    """Weight bytes of one of `tp` ranks, from the shape alone."""
    count = linears(shape)
    each = _dense_bytes_each(shape)
    tables = 1 if shape.tied_embeddings else 2
    kv_ranks = min(tp, shape.kv_heads) if shape.mla is None else tp
    split = (count.sharded * each + _routed(shape) * count.expert * _weight_bytes_each(shape)) / tp
    split += tables * _embedding_bytes(shape) / tp + count.kv * each / kv_ranks
    return split + count.replicated * each + (count.router + count.norms) * shape.dtype_bytes


def weight_bytes(shape: ModelShape) -> int:
    """Bytes of all weights: the checkpoint's where they are known, else computed from the shape."""
    return shape.weight_bytes or round(_computed_bytes(shape))


def weight_bytes_per_card(shape: ModelShape, tp: int) -> float:
    """Bytes of weights on one of `tp` tensor-parallel ranks.

    Linear layers, experts and embeddings are split; the low-rank down-projections of MLA, the router and the
    norms are on every rank, and so are KV projections where there are more ranks than KV heads.
    """
    return weight_bytes(shape) * _computed_bytes(shape, tp) / _computed_bytes(shape)


def kv_bytes_per_token(shape: ModelShape, kv_dtype_bytes: float | None = None) -> float:
    """KV cache bytes of one token over all layers at tensor-parallel size 1."""
    return kv_bytes_per_token_per_card(shape, 1, kv_dtype_bytes)


def kv_bytes_per_token_per_card(shape: ModelShape, tp: int, kv_dtype_bytes: float | None = None) -> float:
    """KV cache bytes of one token on one of `tp` ranks; MLA keeps the same latent on every rank."""
    each = shape.dtype_bytes if kv_dtype_bytes is None else kv_dtype_bytes
    if shape.mla is not None:
        return float((shape.mla.kv_lora_rank + shape.mla.rope_dim) * shape.layers * each)
    heads = max(1.0, shape.kv_heads / tp)
    return 2.0 * heads * shape.head_dim * shape.layers * each


def parameters(shape: ModelShape) -> float:
    """Number of weights, embeddings included."""
    count = linears(shape)
    tables = (1 if shape.tied_embeddings else 2) * shape.vocab * shape.hidden
    fixed = count.sharded + count.replicated + count.kv + count.router + count.norms
    return fixed + _routed(shape) * count.expert + tables


def active_parameters(shape: ModelShape) -> float:
    """Number of weights that serve one token: active experts only, embeddings as in `parameters`."""
    return parameters(shape) - (_routed(shape) - _active(shape)) * linears(shape).expert


def dense_weight_bytes(shape: ModelShape) -> float:
    """Bytes read at every step whatever the batch: all but the routed experts and the input embedding."""
    count = linears(shape)
    read = (count.sharded + count.replicated + count.kv) * _dense_bytes_each(shape)
    return read + (count.router + count.norms) * shape.dtype_bytes + _embedding_bytes(shape)


def expert_weight_bytes(shape: ModelShape) -> float:
    """Bytes of one routed expert over all its layers; 0 for a dense model."""
    return linears(shape).expert * _weight_bytes_each(shape)


def flops_per_token(shape: ModelShape) -> float:
    """FLOPs of the linear layers for one token: active experts only, the head excluded."""
    count = linears(shape)
    passive = count.sharded + count.replicated + count.kv + count.router
    return 2.0 * (passive + _active(shape) * count.expert)


def head_flops(shape: ModelShape) -> float:
    """FLOPs of the output head for one sampled token."""
    return 2.0 * shape.hidden * shape.vocab


def attention_flops_per_token_of_context(shape: ModelShape) -> float:
    """FLOPs of attention for one query token, per token of context, over all layers.

    MLA is counted in its absorbed form, which vLLM uses for decode: scores over latent and rope, values over
    the latent.
    """
    if shape.mla is not None:
        rank, rope = shape.mla.kv_lora_rank, shape.mla.rope_dim
        return 2.0 * shape.heads * (2 * rank + rope) * shape.layers
    return 4.0 * shape.heads * shape.head_dim * shape.layers
