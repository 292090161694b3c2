"""Step times: what was measured on an H200, and what has to hold on any card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sim_helpers import make_trace

from tuner.engines.simulated import Coefficients, SimulatedEngine, default_coefficients
from tuner.engines.simulated.steptime import StepTime
from tuner.hardware import catalogue, find_gpu
from tuner.models import ModelShape, catalogue_models, find_model
from tuner.models.figures import (
    dense_weight_bytes,
    expert_weight_bytes,
    flops_per_token,
    kv_bytes_per_token,
)
from tuner.replay import Replay, Workload
from tuner.space import LaunchConfig

SIZES_13 = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256)
WITHIN = 0.15


def all_at_once(
    shape: ModelShape, requests: int, prompt: int, answer: int, seqs: int, sizes: tuple[int, ...] | None
) -> Replay:
    engine = SimulatedEngine(find_gpu("H200-141G"), shape, "0.21.0")
    flags: dict = {
        "max-num-seqs": seqs,
        "max-num-batched-tokens": 8192,
        "max-model-len": 8192,
        "gpu-memory-utilization": 0.9,
    }
    if sizes:
        flags["cudagraph-capture-sizes"] = sizes
    with engine.launch(LaunchConfig.of(flags), Path()) as server:
        return server.replay(Workload(make_trace(np.zeros(requests), prompt, answer)))


# measured: vLLM 0.21.0, one H200, Llama-3.1-8B's shape in bf16, max-num-batched-tokens 8192
@pytest.mark.parametrize(
    ("requests", "prompt", "answer", "seqs", "sizes", "rps", "mean_e2e_s", "p99_e2e_s"),
    [
        (600, 1000, 200, 256, None, 26.5, None, 22.6),
        (600, 1000, 200, 64, SIZES_13, 20.66, 16.40, None),
        (250, 4000, 60, 256, SIZES_13, 8.36, 24.89, None),
        (600, 1000, 200, 256, SIZES_13, 23.9, None, None),
        (600, 1000, 200, 1024, SIZES_13, 16.5, None, None),
    ],
)
def test_measured_on_an_h200(
    llama_8b: ModelShape,
    requests: int,
    prompt: int,
    answer: int,
    seqs: int,
    sizes: tuple[int, ...] | None,
    rps: float,
    mean_e2e_s: float | None,
    p99_e2e_s: float | None,
) -> None:
    replay = all_at_once(llama_8b, requests, prompt, answer, seqs, sizes)
    e2e = replay.e2e_s()
    assert requests / e2e.max() == pytest.approx(rps, rel=WITHIN)
    if mean_e2e_s:
        assert e2e.mean() == pytest.approx(mean_e2e_s, rel=WITHIN)
    if p99_e2e_s:
        assert np.quantile(e2e, 0.99) == pytest.approx(p99_e2e_s, rel=WITHIN)


def test_decode_at_64_running_on_an_h200(llama_8b: ModelShape) -> None:
    cost = StepTime(find_gpu("H200-141G"), llama_8b, Coefficients(), graph_sizes=SIZES_13)
    assert decode_s(cost, 64, 64 * 1100) == pytest.approx(7.3e-3, rel=WITHIN)


def decode_s(cost: StepTime, decodes: int, context: int) -> float:
    base, floor, fixed, slope = cost.decode(decodes)
    return base + max(floor, fixed + slope * context)


def cost_of(gpu: str, shape: ModelShape, **more: object) -> StepTime:
    card = find_gpu(gpu)
    more.setdefault("graph_sizes", SIZES_13)
    return StepTime(card, shape, default_coefficients(card), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu", sorted(catalogue()))
@pytest.mark.parametrize("model", ["kimi-k2.6-awq", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B"])
def test_never_faster_than_the_data_sheet(gpu: str, model: str) -> None:
    card, shape = find_gpu(gpu), find_model(model)
    cost = cost_of(gpu, shape)
    bandwidth, peak = card.bandwidth_gb_s * 1e9, max(card.tflops.values()) * 1e12
    for decodes in (1, 16, 256, 1024):
        context = decodes * 1000
        seconds = decode_s(cost, decodes, context)
        read = dense_weight_bytes(shape) + expert_weight_bytes(shape) + context * kv_bytes_per_token(shape)
        assert seconds > read / bandwidth
        assert seconds < 300
    tokens = 2048
    prefill = cost.mixed(0, 0, tokens, tokens * tokens // 2, tokens, 1, 1)
    assert prefill > tokens * flops_per_token(shape) / peak


def test_more_work_takes_longer() -> None:
    cost = cost_of("A100-80G", find_model("kimi-k2.6-awq"))
    assert decode_s(cost, 1, 1000) < decode_s(cost, 64, 64_000) < decode_s(cost, 64, 640_000)
    chunk = (2048, 2048 * 1024, 2048, 1, 1)
    assert decode_s(cost, 64, 64_000) < cost.mixed(64, 64_000, *chunk) < cost.mixed(64, 640_000, *chunk)
    assert cost.mixed(0, 0, 512, 512 * 256, 512, 1, 1) < cost.mixed(0, 0, *chunk)


def test_experts_are_read_as_the_batch_touches_them() -> None:
    shape = find_model("kimi-k2.6-awq")
    assert shape.experts is not None
    cost = cost_of("A100-80G", shape)
    one, many = cost.linear_s(1), cost.linear_s(256)
    whole = shape.experts.routed * expert_weight_bytes(shape) / (2039e9 * Coefficients().bandwidth)
    assert one < 0.3 * whole
    assert many > whole


def test_a_padded_batch_costs_its_graph(llama_8b: ModelShape) -> None:
    cost = cost_of("H200-141G", llama_8b, graph_sizes=(8, 256))
    assert cost.linear_s(9) == cost.linear_s(256)
    assert cost.padded(257) is None
    beyond, within = cost_of("H200-141G", llama_8b, graph_sizes=(8,)).decode(9), cost.decode(9)
    assert beyond[1] > within[1], "without a graph the host launches every layer"


def test_tensor_parallel_halves_weights_and_pays_for_it(llama_8b: ModelShape) -> None:
    one = decode_s(cost_of("H100-80G", llama_8b), 32, 32_000)
    two = decode_s(cost_of("H100-80G", llama_8b, tensor_parallel=2), 32, 32_000)
    assert 0.5 * one < two < one


def test_eager_and_synchronous_scheduling_cost_more(llama_8b: ModelShape) -> None:
    graphs = decode_s(cost_of("H200-141G", llama_8b), 8, 8000)
    assert decode_s(cost_of("H200-141G", llama_8b, graph_sizes=()), 8, 8000) > graphs
    assert decode_s(cost_of("H200-141G", llama_8b, asynchronous=False), 8, 8000) > graphs


def test_long_stream_intervals_relieve_the_frontend(llama_8b: ModelShape) -> None:
    one, eight = cost_of("L4-24G", llama_8b), cost_of("L4-24G", llama_8b, stream_interval=8)
    assert eight.frontend_token_s < one.frontend_token_s
    assert eight.frontend_crowd_s < one.frontend_crowd_s


def test_every_model_and_card_has_a_step_time() -> None:
    for gpu in catalogue().values():
        for shape in catalogue_models().values():
            cost = StepTime(gpu, shape, default_coefficients(gpu), graph_sizes=SIZES_13)
            assert 1e-4 < decode_s(cost, 4, 4000) < 300
