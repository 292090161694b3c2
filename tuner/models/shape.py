"""What a model weighs and costs: the figures that memory arithmetic and step times are made from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention: what is kept per token and layer is `kv_lora_rank + rope_dim` values."""

    kv_lora_rank: int
    rope_dim: int
    nope_dim: int
    v_dim: int
    q_lora_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `routed` of which `active` serve a token, beside `shared` ones."""

    routed: int
    active: int
    shared: int
    intermediate: int
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's shape. `weight_bits` are those of the linear layers (4 for AWQ and INT4, 16 for bf16).

    `scale_bits` is what scales and zero points add to each of those weights, in bits. `dense_bits` is set
    where the linear layers other than the routed experts are stored otherwise (Kimi K2 in INT4 keeps
    attention and shared experts in bf16: 16).
    `weight_bytes` is given where it is known from the checkpoint, and 0 otherwise: figures.weight_bytes then
    computes it from the shape. `path` is the model's folder where it was read from one.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_model_len: int
    dtype_bytes: int = 2
    weight_bits: float = 16.0
    quantization: str | None = None
    mla: Mla | None = None
    experts: Experts | None = None
    tied_embeddings: bool = False
    weight_bytes: int = 0
    path: str | None = None
    scale_bits: float = 0.0
    dense_bits: float | None = None
