"""config.json becomes a shape whose parameter count is the published one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import ALL

from tuner.errors import BadRequest
from tuner.models import active_parameters, kv_bytes_per_token, parameters, shape_from_config, weight_bytes

Configs = dict[str, dict[str, Any]]


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("LLAMA_8B", 8.03, 8.03),
        ("QWEN3_4B", 4.02, 4.02),
        ("QWEN3_30B_A3B", 30.53, 3.35),
        ("MIXTRAL_8X7B", 46.70, 12.88),
        ("MISTRAL_7B", 7.25, 7.25),
        ("GEMMA2_9B", 9.24, 9.24),
        ("QWEN15_MOE", 14.3, 2.7),
        ("DEEPSEEK_V2_LITE", 15.7, 2.66),
        ("DEEPSEEK_V3", 671.0, 37.5),
        ("KIMI_K26", 1026.0, 32.9),
    ],
)
def test_parameters_as_published(configs: Configs, name: str, billions: float, active: float) -> None:
    shape = shape_from_config(configs[name], name)
    assert parameters(shape) / 1e9 == pytest.approx(billions, rel=0.01)
    assert active_parameters(shape) / 1e9 == pytest.approx(active, rel=0.02)


def test_kimi_is_read_by_its_language_part(configs: Configs) -> None:
    shape = shape_from_config(configs["KIMI_K26"], "moonshotai/Kimi-K2.6", "/models/k")
    assert (shape.layers, shape.hidden, shape.heads, shape.max_model_len) == (61, 7168, 64, 262144)
    assert shape.experts is not None and (shape.experts.routed, shape.experts.active) == (384, 8)
    assert (shape.weight_bits, shape.scale_bits, shape.dense_bits) == (4, 0.5, 16)
    assert shape.path == "/models/k"
    assert weight_bytes(shape) == pytest.approx(594e9, rel=0.01)
    assert kv_bytes_per_token(shape) == 70272


def test_mla_heads(configs: Configs) -> None:
    shape = shape_from_config(configs["DEEPSEEK_V2_LITE"], "v2")
    assert shape.mla is not None and shape.mla.q_lora_rank is None
    assert (shape.head_dim, shape.kv_heads) == (192, 16)
    assert shape.experts is not None and shape.experts.dense_layers == 1


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        (None, 32768),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "linear", "factor": 2.0}, 65536),
        ({"rope_type": "default", "rope_theta": 1e6}, 32768),
        ({"type": "mrope", "mrope_section": [16, 24, 24]}, 32768),
    ],
)
def test_rope_scaling_stretches_the_length(configs: Configs, scaling: Any, length: int) -> None:
    config = configs["MISTRAL_7B"] | {"rope_scaling": scaling}
    assert shape_from_config(config, "m").max_model_len == length


@pytest.mark.parametrize(
    ("quantization", "bits", "scale", "dense"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4, 20 / 128, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64}, 8, 24 / 64, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 4, 0, None),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, 8, 0, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8, 32 / 16384, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4, 0.5, None),
        ({"load_in_8bit": True}, 8, 0, None),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, 4, 0.25, 16),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            8,
            0,
            None,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "group_size": 128, "symmetric": False}}
                },
            },
            4,
            20 / 128,
            None,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4, 0.5, None),
    ],
)
def test_quantisation(
    configs: Configs, quantization: dict[str, Any], bits: float, scale: float, dense: float | None
) -> None:
    shape = shape_from_config(configs["LLAMA_8B"] | {"quantization_config": quantization}, "q")
    assert (shape.weight_bits, shape.scale_bits, shape.dense_bits) == (bits, pytest.approx(scale), dense)


def test_awq_llama_weighs_what_is_published(configs: Configs) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    shape = shape_from_config(configs["LLAMA_8B"] | {"quantization_config": awq}, "hugging-quants/Llama-AWQ")
    assert weight_bytes(shape) == pytest.approx(5.74e9, rel=0.01)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers is 'many'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"num_hidden_layers": 3.5}, "num_hidden_layers is 3.5"),
        ({"quantization_config": {"quant_method": "magic"}}, "'magic'"),
        ({"quantization_config": {}, "is_encoder_decoder": True}, "encoder-decoder"),
        ({"quantization_config": {"quant_method": "awq", "bits": "four"}}, "awq cannot be read"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "config_groups"),
        ({"quantization_config": ["awq"]}, "not an object"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear-attention"),
        ({"mamba_d_state": 128}, "state-space"),
    ],
)
def test_what_cannot_be_used_is_said(configs: Configs, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match="config.json") as error:
        shape_from_config(configs["LLAMA_8B"] | change, "broken")
    assert said in str(error.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200)
@given(st.data())
def test_odd_values_never_raise_anything_else(data: st.DataObject) -> None:
    config = dict(ALL[data.draw(st.sampled_from(sorted(ALL)))])
    field = data.draw(
        st.sampled_from([*sorted(config), "quantization_config", "rope_scaling", "layer_types"])
    )
    config[field] = data.draw(_JSON)
    try:
        shape = shape_from_config(config, "odd")
    except BadRequest as error:
        assert "\n" not in str(error)
    else:
        assert parameters(shape) > 0
