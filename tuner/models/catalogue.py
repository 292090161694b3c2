"""Models that can be tuned for by name, without their files: public shapes and the project's own build."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tuner.models.shape import Experts, Mla, ModelShape

_MLA = Mla(kv_lora_rank=512, rope_dim=64, nope_dim=128, v_dim=128)

# The build that this project's scenario names: the user's own AWQ quantisation of a small model of the Kimi
# family, 27 GB of weights. It is not a public checkpoint. The shape is the project's: attention and
# vocabulary as in the family, depth and experts chosen so that 48.9 B parameters (3.6 B active, 0.8 B of them
# embeddings) at 4 bits with a 16-bit scale and a 4-bit zero point for 128 weights come to 26.7 GB.
_KIMI_AWQ = ModelShape(
    name="kimi-k2.6-awq",
    layers=32,
    hidden=2560,
    heads=32,
    kv_heads=32,
    head_dim=192,
    intermediate=10240,
    vocab=163840,
    max_model_len=131072,
    weight_bits=4.0,
    quantization="awq",
    mla=_MLA,
    experts=Experts(routed=256, active=8, shared=1, intermediate=768, dense_layers=1),
    weight_bytes=27_000_000_000,
    scale_bits=20 / 128,
)

# config.json of moonshotai/Kimi-K2.6 (text_config); INT4 experts with a bf16 scale for 32 weights, the rest
# in bf16; 594 GB as published.
_KIMI_K26 = ModelShape(
    name="moonshotai/Kimi-K2.6",
    layers=61,
    hidden=7168,
    heads=64,
    kv_heads=64,
    head_dim=192,
    intermediate=18432,
    vocab=163840,
    max_model_len=262144,
    weight_bits=4.0,
    quantization="compressed-tensors",
    mla=Mla(kv_lora_rank=512, rope_dim=64, nope_dim=128, v_dim=128, q_lora_rank=1536),
    experts=Experts(routed=384, active=8, shared=1, intermediate=2048, dense_layers=1),
    weight_bytes=594_000_000_000,
    scale_bits=16 / 32,
    dense_bits=16.0,
)

# config.json of moonshotai/Moonlight-16B-A3B-Instruct
_MOONLIGHT = ModelShape(
    name="moonshotai/Moonlight-16B-A3B-Instruct",
    layers=27,
    hidden=2048,
    heads=16,
    kv_heads=16,
    head_dim=192,
    intermediate=11264,
    vocab=163840,
    max_model_len=8192,
    mla=_MLA,
    experts=Experts(routed=64, active=6, shared=2, intermediate=1408, dense_layers=1),
)


def _llama(name: str, layers: int, hidden: int, heads: int, intermediate: int) -> ModelShape:
    """A Llama 3 shape: 8 KV heads of 128."""
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        intermediate=intermediate,
        vocab=128256,
        max_model_len=131072,
    )


def _qwen3(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    intermediate: int,
    *,
    kv_heads: int = 8,
    tied: bool = False,
    experts: Experts | None = None,
) -> ModelShape:
    """A Qwen3 shape: heads of 128 whatever the hidden size, 40,960 positions."""
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        intermediate=intermediate,
        vocab=151936,
        max_model_len=40960,
        tied_embeddings=tied,
        experts=experts,
    )


_MODELS = (
    _KIMI_AWQ,
    _KIMI_K26,
    _MOONLIGHT,
    _llama("meta-llama/Llama-3.1-8B-Instruct", 32, 4096, 32, 14336),
    _llama("meta-llama/Llama-3.1-70B-Instruct", 80, 8192, 64, 28672),
    _llama("meta-llama/Llama-3.3-70B-Instruct", 80, 8192, 64, 28672),
    _qwen3("Qwen/Qwen3-0.6B", 28, 1024, 16, 3072, tied=True),
    _qwen3("Qwen/Qwen3-1.7B", 28, 2048, 16, 6144, tied=True),
    _qwen3("Qwen/Qwen3-4B", 36, 2560, 32, 9728, tied=True),
    _qwen3("Qwen/Qwen3-8B", 36, 4096, 32, 12288),
    _qwen3("Qwen/Qwen3-14B", 40, 5120, 40, 17408),
    _qwen3("Qwen/Qwen3-32B", 64, 5120, 64, 25600),
    _qwen3("Qwen/Qwen3-30B-A3B", 48, 2048, 32, 6144, kv_heads=4, experts=Experts(128, 8, 0, 768)),
    _qwen3("Qwen/Qwen3-235B-A22B", 94, 4096, 64, 12288, kv_heads=4, experts=Experts(128, 8, 0, 1536)),
)
_BY_NAME = MappingProxyType({shape.name: shape for shape in _MODELS})


def catalogue_models() -> Mapping[str, ModelShape]:
    """Every model of the catalogue by its hub id (or its own name)."""
    return _BY_NAME
