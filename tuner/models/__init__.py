"""Models: shapes from config.json or the catalogue, and the bytes and FLOPs that follow."""

from tuner.models.catalogue import catalogue_models
from tuner.models.config import shape_from_config
from tuner.models.figures import (
    active_parameters,
    attention_flops_per_token_of_context,
    dense_weight_bytes,
    expert_weight_bytes,
    flops_per_token,
    head_flops,
    kv_bytes_per_token,
    kv_bytes_per_token_per_card,
    parameters,
    weight_bytes,
    weight_bytes_per_card,
)
from tuner.models.find import find_model
from tuner.models.folder import has_weights
from tuner.models.shape import Experts, Mla, ModelShape

__all__ = [
    "Experts",
    "Mla",
    "ModelShape",
    "active_parameters",
    "attention_flops_per_token_of_context",
    "catalogue_models",
    "dense_weight_bytes",
    "expert_weight_bytes",
    "find_model",
    "flops_per_token",
    "has_weights",
    "head_flops",
    "kv_bytes_per_token",
    "kv_bytes_per_token_per_card",
    "parameters",
    "shape_from_config",
    "weight_bytes",
    "weight_bytes_per_card",
]
