"""Bytes and FLOPs against published figures, and the laws that hold for every shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.models import (
    ModelShape,
    active_parameters,
    attention_flops_per_token_of_context,
    catalogue_models,
    dense_weight_bytes,
    expert_weight_bytes,
    find_model,
    flops_per_token,
    head_flops,
    kv_bytes_per_token,
    kv_bytes_per_token_per_card,
    parameters,
    weight_bytes,
    weight_bytes_per_card,
)

SHAPES = list(catalogue_models().values())
shapes = st.sampled_from(SHAPES)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("Llama-3.1-8B", 8.03, 8.03),
        ("Llama-3.1-70B", 70.6, 70.6),
        ("Llama-3.3-70B", 70.6, 70.6),
        ("Qwen3-0.6B", 0.596, 0.596),
        ("Qwen3-1.7B", 1.72, 1.72),
        ("Qwen3-4B", 4.02, 4.02),
        ("Qwen3-8B", 8.19, 8.19),
        ("Qwen3-14B", 14.77, 14.77),
        ("Qwen3-32B", 32.76, 32.76),
        ("Qwen3-30B-A3B", 30.53, 3.35),
        ("Qwen3-235B-A22B", 235.1, 22.2),
        ("Moonlight-16B-A3B", 15.96, 2.91),
        ("Kimi-K2.6", 1026.0, 32.9),
        ("kimi-k2.6-awq", 48.9, 3.6),
    ],
)
def test_parameters_as_published(name: str, billions: float, active: float) -> None:
    shape = find_model(name)
    assert parameters(shape) / 1e9 == pytest.approx(billions, rel=0.005)
    assert active_parameters(shape) / 1e9 == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    ("name", "bytes_a_token"),
    [
        ("Kimi-K2.6", 70272),
        ("Moonlight-16B-A3B", 31104),
        ("Llama-3.1-8B", 131072),
        ("Llama-3.1-70B", 327680),
        ("Qwen3-8B", 147456),
        ("kimi-k2.6-awq", 36864),
    ],
)
def test_kv_bytes_a_token(name: str, bytes_a_token: int) -> None:
    shape = find_model(name)
    assert kv_bytes_per_token(shape) == bytes_a_token
    assert kv_bytes_per_token(shape, 1.0) == bytes_a_token / 2


def test_weights_in_bytes() -> None:
    assert weight_bytes(find_model("Llama-3.1-8B")) == pytest.approx(16.06e9, rel=0.001)
    assert weight_bytes(find_model("Moonlight-16B-A3B")) == pytest.approx(31.92e9, rel=0.001)
    assert weight_bytes(find_model("Kimi-K2.6")) == 594_000_000_000


@pytest.mark.parametrize("name", ["kimi-k2.6-awq", "Kimi-K2.6"])
def test_given_bytes_agree_with_the_shape(name: str) -> None:
    shape = find_model(name)
    assert weight_bytes(replace(shape, weight_bytes=0)) == pytest.approx(shape.weight_bytes, rel=0.02)


def test_mla_is_replicated_and_heads_are_split() -> None:
    kimi, llama = find_model("Kimi-K2.6"), find_model("Llama-3.1-8B")
    assert kv_bytes_per_token_per_card(kimi, 8) == 70272
    assert kv_bytes_per_token_per_card(llama, 8) == 131072 / 8
    assert kv_bytes_per_token_per_card(llama, 16) == 131072 / 8  # eight KV heads cannot be split in sixteen


def test_flops_are_twice_the_active_weights() -> None:
    llama = find_model("Llama-3.1-8B")
    embedding = llama.vocab * llama.hidden
    # the norms are weights without multiply-adds worth counting
    assert flops_per_token(llama) == pytest.approx(2 * (parameters(llama) - 2 * embedding), rel=1e-4)
    assert head_flops(llama) == 2 * embedding
    # 32 layers x 32 heads x 128: scores and values, two FLOPs each
    assert attention_flops_per_token_of_context(llama) == 4 * 32 * 32 * 128


def test_absorbed_mla_attends_over_the_latent() -> None:
    moonlight = find_model("Moonlight-16B-A3B")
    assert attention_flops_per_token_of_context(moonlight) == 27 * 16 * 2 * (576 + 512)


@given(shapes)
def test_parts_make_the_whole(shape: ModelShape) -> None:
    shape = replace(shape, weight_bytes=0)
    routed = shape.experts.routed if shape.experts else 0
    embedding = 0 if shape.tied_embeddings else shape.vocab * shape.hidden * 2
    whole = dense_weight_bytes(shape) + routed * expert_weight_bytes(shape) + embedding
    assert whole == pytest.approx(weight_bytes(shape), rel=1e-9)
    assert (expert_weight_bytes(shape) > 0) == (shape.experts is not None)


@given(shapes, st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([2, 4]))
def test_more_ranks_hold_less_each_and_no_less_together(shape: ModelShape, tp: int, factor: int) -> None:
    one, many = weight_bytes_per_card(shape, tp), weight_bytes_per_card(shape, tp * factor)
    assert many < one <= many * factor * (1 + 1e-12)
    assert weight_bytes_per_card(shape, 1) == pytest.approx(weight_bytes(shape))
    kv_one, kv_many = (kv_bytes_per_token_per_card(shape, n) for n in (tp, tp * factor))
    assert kv_many <= kv_one <= kv_many * factor


@given(shapes, st.integers(1, 4), st.floats(4, 16), st.floats(0, 1))
def test_more_of_everything_weighs_more(shape: ModelShape, more: int, bits: float, scale: float) -> None:
    base = replace(shape, weight_bytes=0, weight_bits=bits, scale_bits=0.0)
    assert weight_bytes(replace(base, layers=base.layers + more)) > weight_bytes(base)
    assert weight_bytes(replace(base, scale_bits=scale)) >= weight_bytes(base)
    assert active_parameters(base) <= parameters(base)
    assert flops_per_token(base) <= 2 * parameters(base)
