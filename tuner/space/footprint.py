"""What one card holds beside the KV cache, term by term: weights, peak activation, graphs.

The constants follow from start-up logs of vLLM 0.21.0 on an H200 (8B Llama at 64, 256 and 1024 sequences,
Moonlight-16B-A3B).
"""

from __future__ import annotations

from functools import lru_cache

from tuner.models import ModelShape, weight_bytes_per_card
from tuner.space.effective import Effective
from tuner.space.graphs import effective_capture_sizes

GIB = 2**30

# Rotary tables and the allocator's rounding beside the weights: 15.00 GiB logged for 14.96 GiB of Llama-8B.
_LOADING_GIB = 0.04
# The dummy sampler run holds logits in 16 bits and three copies in fp32: bytes for each of seqs x vocab.
_SAMPLER_BYTES = 14
# Buffers of tokens x intermediate that live at once: gate and up, their product, one more while compiling.
_MLP_BUFFERS = 4
# A full decode graph holds its kernels' parameters: MiB a layer; MLA and experts launch more kernels each.
_GRAPH_LAYER_MIB, _GRAPH_MLA_MIB, _GRAPH_EXPERTS_MIB = 0.28, 0.2, 0.2
_GRAPH_POOL_GIB, _PIECEWISE_MIB = 0.04, 0.3


@lru_cache(maxsize=256)
def loaded_weights_gib(shape: ModelShape, tp: int, pp: int = 1) -> float:
    """GiB on one card once the model is loaded. MLA keeps its up-projection a second time, in 16 bits, in
    the form that decode wants (vllm/model_executor/layers/attention/mla_attention.py)."""
    loaded = weight_bytes_per_card(shape, tp)
    if shape.mla is not None:
        mla = shape.mla
        loaded += shape.layers * mla.kv_lora_rank * shape.heads * (mla.nope_dim + mla.v_dim) * 2 / tp
    return loaded / pp / GIB + _LOADING_GIB


@lru_cache(maxsize=256)
def _forward_bytes_per_token(shape: ModelShape, tp: int) -> float:
    """Peak bytes of one token in a forward pass: the widest layer's buffers and two hidden vectors; expert
    workspaces (vllm fused_moe: top-k copies of the wider of both sides, twice) outlive their layer."""
    experts = shape.experts
    wide = shape.intermediate / tp if not experts or experts.dense_layers else 0.0
    if experts:
        wide = max(wide, experts.shared * experts.intermediate / tp)
    if shape.mla is not None:
        heads, mla = shape.heads / tp, shape.mla
        attention = heads * (2 * (mla.nope_dim + mla.rope_dim) + mla.nope_dim + 2 * mla.v_dim)
    else:
        attention = (2 * shape.heads + 2 * shape.kv_heads) / tp * shape.head_dim
    values = 2 * shape.hidden + max(_MLP_BUFFERS * wide, attention)
    if experts:
        inner = experts.intermediate / tp
        values += experts.active * (max(2 * inner, shape.hidden) + max(inner, shape.hidden))
    return float(values * shape.dtype_bytes)


def forward_gib(shape: ModelShape, values: Effective, tp: int) -> float:
    """Peak of the profiling run's forward pass over max-num-batched-tokens tokens."""
    return max(1, values.max_num_batched_tokens) * _forward_bytes_per_token(shape, tp) / GIB


def sampler_gib(shape: ModelShape, values: Effective) -> float:
    """Peak of the profiling run's sampler over max-num-seqs rows of logits, the hidden states still there."""
    rows = max(1, min(values.max_num_seqs, values.max_num_batched_tokens))
    hidden = max(1, values.max_num_batched_tokens) * shape.hidden * shape.dtype_bytes
    return (rows * shape.vocab * _SAMPLER_BYTES + hidden) / GIB


def graph_gib(shape: ModelShape, values: Effective, version: str) -> float:
    """What CUDA graphs take: a small pool, piecewise graphs, and a full graph for each decode batch size."""
    sizes = effective_capture_sizes(values, version)
    if not sizes:
        return 0.0
    full = sum(1 for size in sizes if size <= values.max_num_seqs)
    layer = _GRAPH_LAYER_MIB
    layer += (_GRAPH_MLA_MIB if shape.mla else 0.0) + (_GRAPH_EXPERTS_MIB if shape.experts else 0.0)
    return _GRAPH_POOL_GIB + (len(sizes) * _PIECEWISE_MIB + full * shape.layers * layer) / 1024
