"""What one card holds beside the KV cache, term by term: weights, peak activation, graphs.

The constants follow from start-up logs of vLLM 0.21.0 on an H200 (8B Llama at 64, 256 and 1024 sequences,
Moonlight-16B-A3B).
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.models import ModelShape, kv_bytes_per_token_per_card, weight_bytes_per_card

GIB = 2**30
_MIB_PER_GIB = 1024

# Rotary tables and the allocator's rounding beside the weights: 15.00 GiB logged for 14.96 GiB of Llama-8B.
_LOADING_GIB = 0.04
# The dummy sampler run holds logits in 16 bits and three copies in fp32: bytes for each of seqs x vocab.
_SAMPLER_BYTES = 14
# Buffers of tokens x intermediate that live at once: gate and up, their product, one more while compiling.
_MLP_BUFFERS = 4
# A full decode graph holds its kernels' parameters: MiB a layer; MLA and experts launch more kernels each.
_GRAPH_LAYER_MIB, _GRAPH_MLA_MIB, _GRAPH_EXPERTS_MIB = 0.28, 0.2, 0.2
_GRAPH_POOL_GIB, _PIECEWISE_MIB = 0.04, 0.3


@dataclass(frozen=True, slots=True)
class Footprint:
    """One rank's memory in the units that flags multiply: GiB a token, a row of logits, a graph."""

    weights_gib: float
    forward_gib_per_token: float
    hidden_gib_per_token: float
    logits_gib_per_row: float
    full_graph_gib: float
    kv_bytes_per_token: float
    kv_bytes_per_token_fp8: float

    @classmethod
    def of(cls, shape: ModelShape, tp: int, pp: int = 1) -> Footprint:
        """The footprint of one of `tp` x `pp` ranks."""
        layer = _GRAPH_LAYER_MIB
        layer += (_GRAPH_MLA_MIB if shape.mla else 0.0) + (_GRAPH_EXPERTS_MIB if shape.experts else 0.0)
        return cls(
            weights_gib=_loaded_bytes(shape, tp) / pp / GIB + _LOADING_GIB,
            forward_gib_per_token=_forward_values(shape, tp) * shape.dtype_bytes / GIB,
            hidden_gib_per_token=shape.hidden * shape.dtype_bytes / GIB,
            logits_gib_per_row=shape.vocab * _SAMPLER_BYTES / GIB,
            full_graph_gib=shape.layers / pp * layer / _MIB_PER_GIB,
            kv_bytes_per_token=kv_bytes_per_token_per_card(shape, tp) / pp,
            kv_bytes_per_token_fp8=kv_bytes_per_token_per_card(shape, tp, 1.0) / pp,
        )

    def forward_gib(self, tokens: int) -> float:
        """Peak of the profiling run's forward pass over `tokens` (max-num-batched-tokens)."""
        return max(1, tokens) * self.forward_gib_per_token

    def sampler_gib(self, seqs: int, tokens: int) -> float:
        """Peak of the profiling run's sampler over `seqs` rows, the hidden states of `tokens` still there."""
        return (
            max(1, min(seqs, tokens)) * self.logits_gib_per_row + max(1, tokens) * self.hidden_gib_per_token
        )

    def graph_gib(self, piecewise: int, full: int) -> float:
        """What CUDA graphs take: a small pool, piecewise graphs, and full graphs of decode batches."""
        if not piecewise:
            return 0.0
        return _GRAPH_POOL_GIB + piecewise * _PIECEWISE_MIB / _MIB_PER_GIB + full * self.full_graph_gib


def _loaded_bytes(shape: ModelShape, tp: int) -> float:
    """Bytes once the model is loaded. MLA keeps its up-projection a second time, in 16 bits, in the form
    that decode wants (vllm/model_executor/layers/attention/mla_attention.py).
    """
    loaded = weight_bytes_per_card(shape, tp)
    if shape.mla is not None:
        mla = shape.mla
        loaded += shape.layers * mla.kv_lora_rank * shape.heads * (mla.nope_dim + mla.v_dim) * 2 / tp
    return loaded


def _forward_values(shape: ModelShape, tp: int) -> float:
    """Numbers held for one token at the peak of a forward pass: the widest layer's buffers and two hidden
    vectors; expert workspaces (vllm fused_moe: top-k rows of each product, as wide as its wider side) outlive
    their layer.
    """
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
    return values
