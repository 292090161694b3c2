"""KV cache by arithmetic against vLLM's own logs, and the laws that memory obeys."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import Infeasible
from tuner.hardware import find_gpu
from tuner.models import ModelShape, catalogue_models, find_model, shape_from_config
from tuner.space import (
    MemoryModel,
    capture_sizes,
    check_feasible,
    effective_defaults,
    gpus_needed,
    plan_memory,
)
from tuner.spec import FlagValue

LOGS = Path(__file__).parents[2].parent / "shared" / "vllm_logs"
LLAMA, MOONLIGHT = find_model("llama-3.1-8b"), find_model("moonlight-16b-a3b")
TINY = shape_from_config(
    {
        "model_type": "llama",
        "vocab_size": 4096,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
    },
    "tiny",
)
H200 = find_gpu("H200")


@dataclass(frozen=True)
class Log:
    """One start-up on the H200: flags and what vLLM logged."""

    file: str
    shape: ModelShape
    config: dict[str, Any]
    kv_gib: float
    kv_tokens: int
    weights_gib: float
    graph_gib: float


SERVED = {"gpu-memory-utilization": 0.9, "max-model-len": 8192}
READY = [
    Log("ready", LLAMA, SERVED | {"max-num-seqs": 256}, 109.12, 893904, 15.0, 0.36),
    Log("ready_warm_cache", LLAMA, SERVED | {"max-num-seqs": 256}, 109.35, 895776, 15.0, 0.36),
    Log("ready_num_seqs_64", LLAMA, SERVED | {"max-num-seqs": 64}, 109.34, 895680, 15.0, 0.14),
    Log("moonlight_ready", MOONLIGHT, SERVED | {"max-num-seqs": 256}, 93.88, 3240768, 29.88, 0.69),
]
DIED = [
    # the estimated maximum model length is what fits, in whole blocks
    Log(
        "model_len_over_kv",
        LLAMA,
        {"gpu-memory-utilization": 0.2, "max-model-len": 131072},
        10.34,
        84704,
        15.0,
        0.50,
    ),
    Log("no_kv_memory", LLAMA, {"gpu-memory-utilization": 0.1, "max-model-len": 8192}, -3.64, 0, 15.0, 0.50),
]
ALL = READY + DIED


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings of vLLM are part of the arithmetic; these tests have none."""
    monkeypatch.delenv("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", raising=False)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)


by_log = pytest.mark.parametrize("log", ALL, ids=lambda log: log.file)


@by_log
def test_the_figures_here_are_the_logs(log: Log) -> None:
    path = LOGS / f"h200_0.21.0_{log.file}.log"
    if not path.exists():
        pytest.skip("the logs are not beside this checkout")
    text = path.read_text()

    def number(pattern: str) -> float:
        found = re.search(pattern, text)
        assert found, pattern
        return float(found[1].replace(",", ""))

    assert number(r"Available KV cache memory: (-?[\d.]+) GiB") == log.kv_gib
    assert number(r"Model loading took ([\d.]+) GiB") == log.weights_gib
    assert number(r"Estimated CUDA graph memory: ([\d.]+) GiB") == log.graph_gib
    if log.kv_tokens:
        pattern = r"(?:KV cache size: |maximum model length is )([\d,]+)"
        assert number(pattern) == log.kv_tokens
    sizes = capture_sizes(_seqs(log), 8192, "0.21.0")
    assert number(r"PIECEWISE=(\d+)") == len(sizes)
    assert number(r"PIECEWISE=\d+ \(largest=(\d+)") == sizes[-1]
    assert number(r"FULL=(\d+)") == sum(size <= _seqs(log) for size in sizes)


def _seqs(log: Log) -> int:
    return int(log.config.get("max-num-seqs", 1024))


@by_log
def test_within_three_percent_before_any_launch(log: Log) -> None:
    plan = plan_memory(H200, log.shape, log.config, "0.21.0")
    assert plan.kv_gib == pytest.approx(log.kv_gib, rel=0.03)
    assert plan.kv_tokens == pytest.approx(log.kv_tokens, rel=0.03)
    assert plan.weights_gib == pytest.approx(log.weights_gib, rel=0.005)
    assert plan.graph_gib == pytest.approx(log.graph_gib, abs=0.03)
    assert plan.block_size == 16 and plan.kv_blocks * 16 == plan.kv_tokens


@pytest.mark.parametrize("known", ALL[:3] + DIED, ids=lambda log: log.file)
def test_within_one_percent_after_any_one_launch(known: Log) -> None:
    """Each log of the 8B shape teaches the others, whether its term or another's is the peak there."""
    model = MemoryModel(H200, LLAMA, "0.21.0")
    by_gib = model.calibrated(known.config, kv_gib=known.kv_gib, weights_gib=known.weights_gib)
    for log in [*READY[:3], *DIED]:
        assert by_gib.plan(log.config).kv_gib == pytest.approx(log.kv_gib, rel=0.01)
    if known.kv_tokens:
        by_tokens = model.calibrated(known.config, kv_tokens=known.kv_tokens)
        assert by_tokens.plan(known.config).kv_tokens == pytest.approx(known.kv_tokens, abs=16)


def test_the_warm_logs_blocks_are_met_exactly_once_known() -> None:
    log = READY[1]
    model = MemoryModel(H200, LLAMA, "0.21.0").calibrated(log.config, kv_tokens=895776)
    assert abs(model.plan(log.config).kv_blocks - 55986) <= 1  # num_gpu_blocks in its /metrics


def test_a_launch_without_figures_teaches_nothing() -> None:
    model = MemoryModel(H200, LLAMA, "0.21.0")
    assert model.calibrated({}, kv_tokens=None) is model


SIZES_TO_512 = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
MEASURED_KV_TOKENS: list[tuple[dict[str, FlagValue], int]] = [
    ({"gpu-memory-utilization": 0.9}, 886_368),
    ({"gpu-memory-utilization": 0.9, "max-num-seqs": 64, "cudagraph-capture-sizes": SIZES_TO_512}, 896_128),
    ({"gpu-memory-utilization": 0.9, "max-num-seqs": 128, "cudagraph-capture-sizes": SIZES_TO_512}, 896_064),
    ({"gpu-memory-utilization": 0.2}, 84_688),
    ({"gpu-memory-utilization": 0.9, "max-num-batched-tokens": 2048}, 886_752),
    ({"gpu-memory-utilization": 0.9, "max-num-batched-tokens": 16384, "max-num-seqs": 256}, 888_384),
]
"""Read from servers of the 8B shape on an H200, vLLM 0.21.0 (tests/benchmarks/prediction.py)."""


@pytest.mark.parametrize(("flags", "kv_tokens"), MEASURED_KV_TOKENS)
def test_other_configurations_within_3_percent_and_after_one_launch_within_1(
    flags: dict[str, FlagValue], kv_tokens: int
) -> None:
    model = MemoryModel(H200, LLAMA, "0.21.0")
    config = {"max-model-len": 8192, **flags}
    assert model.plan(config).kv_tokens == pytest.approx(kv_tokens, rel=0.03)
    first, first_tokens = MEASURED_KV_TOKENS[0]
    known = model.calibrated({"max-model-len": 8192, **first}, kv_tokens=first_tokens)
    assert known.plan(config).kv_tokens == pytest.approx(kv_tokens, rel=0.01)
    assert model.calibrated({"kv-cache-memory-bytes": 2**30}, kv_gib=1.0) is model


def test_cpu_servers_take_the_size_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 0.32 CPU logs: 1 GiB asked for by VLLM_CPU_KVCACHE_SPACE, 524,288 tokens."""
    cpu = find_gpu("cpu")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    for config in ({"block-size": 32, "max-num-seqs": 8, "max-model-len": 2048}, {"enforce-eager": True}):
        assert plan_memory(cpu, TINY, config, "0.32.0").kv_tokens == 524_288
    assert plan_memory(cpu, TINY, {}, "0.32.0").block_size == 128
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    assert plan_memory(cpu, TINY, {}, "0.32.0").kv_tokens == 2 * 524_288
    assert plan_memory(cpu, TINY, {"kv-cache-memory-bytes": 2**29}, "0.32.0").kv_tokens == 262_144
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE")
    assert plan_memory(cpu, TINY, {}, "0.32.0").kv_tokens == 524_288


def test_cpu_logs_say_so() -> None:
    for name in ("cpu_0.32.0_ready.log", "cpu_0.32.0_ready_eager.log"):
        if not (LOGS / name).exists():
            pytest.skip("the logs are not beside this checkout")
        assert "CPU KV cache size: 524,288 tokens" in (LOGS / name).read_text()


def test_capture_sizes() -> None:
    assert capture_sizes(64, 8192, "0.21.0") == (1, 2, 4, *range(8, 129, 8))
    many = capture_sizes(256, 8192, "0.21.0")
    assert many == capture_sizes(1024, 8192, "0.21.0") and len(many) == 51
    assert many[:4] == (1, 2, 4, 8) and many[-2:] == (496, 512)
    assert capture_sizes(1, 8192, "0.21.0") == (1, 2)
    assert capture_sizes(256, 100, "0.21.0")[-1] == 96
    # later versions add the largest batch itself
    assert 100 in capture_sizes(100, 8192, "0.32.0") and 100 not in capture_sizes(100, 8192, "0.21.0")


def test_graphs_lie_inside_the_budget_from_0_20_2_on() -> None:
    before, after = (plan_memory(H200, LLAMA, SERVED, version) for version in ("0.20.1", "0.20.2"))
    assert before.graph_gib == 0.0 and before.unbudgeted_gib == after.graph_gib > 0.3
    assert before.kv_gib == pytest.approx(after.kv_gib + after.graph_gib)


def test_the_environment_moves_graphs_out_of_the_budget_and_in(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
    monkeypatch.setenv(name, "0")
    assert plan_memory(H200, LLAMA, SERVED, "0.21.0").graph_gib == 0.0
    monkeypatch.setenv(name, "1")
    assert plan_memory(H200, LLAMA, SERVED, "0.18.0").graph_gib > 0.3
    assert plan_memory(H200, LLAMA, SERVED, "0.17.0").graph_gib == 0.0


def test_eager_and_pinned_sizes_need_less_for_graphs() -> None:
    own = plan_memory(H200, LLAMA, SERVED, "0.21.0").graph_gib
    pinned = plan_memory(H200, LLAMA, SERVED | {"cudagraph-capture-sizes": (1, 8, 64)}, "0.21.0").graph_gib
    eager = plan_memory(H200, LLAMA, SERVED | {"enforce-eager": True}, "0.21.0").graph_gib
    assert eager == 0.0 < pinned < own


def test_a_given_size_overrides_utilisation() -> None:
    plan = plan_memory(H200, LLAMA, {"kv-cache-memory-bytes": 8 * 2**30}, "0.21.0")
    assert (plan.kv_gib, plan.kv_tokens) == (8.0, 65536)


@pytest.mark.parametrize(
    ("gpu", "model", "count"),
    [
        ("H200", "moonshotai/Kimi-K2.6", 8),
        ("A100-80G", "moonshotai/Kimi-K2.6", 16),
        ("A100-80G", "kimi-k2.6-awq", 1),
        ("A100-80G", "llama-3.1-70b", 4),
        ("H200", "llama-3.1-70b", 2),
        ("L4", "llama-3.1-8b", 1),
        ("T4", "llama-3.1-8b", 2),
        ("T4", "moonshotai/Kimi-K2.6", None),
        ("cpu", "moonshotai/Kimi-K2.6", None),
    ],
)
def test_gpus_needed(gpu: str, model: str, count: int | None) -> None:
    assert gpus_needed(find_gpu(gpu), find_model(model)) == count


def test_kimi_on_one_a100_is_refused_with_the_sum() -> None:
    with pytest.raises(Infeasible) as error:
        check_feasible(find_gpu("A100-80G"), find_model("moonshotai/Kimi-K2.6"), "0.21.0")
    assert "594 GB" in error.value.what and "80 GB" in error.value.what
    assert "16 x A100-80G" in error.value.mend and "--gpu 16xA100-80G" in error.value.mend
    assert error.value.exit_code == 4


def test_weights_that_only_just_fit_are_refused_with_all_terms() -> None:
    card = replace(find_gpu("T4"), memory_gib=15.4)
    with pytest.raises(Infeasible, match="for activations and CUDA itself"):
        check_feasible(card, LLAMA, "0.21.0")


def test_a_model_over_the_hosts_memory() -> None:
    with pytest.raises(Infeasible, match="smaller model"):
        check_feasible(find_gpu("cpu"), find_model("moonshotai/Kimi-K2.6"), "0.32.0")


@pytest.mark.parametrize(
    ("gpu", "model"),
    [
        ("16xA100-80G", "moonshotai/Kimi-K2.6"),
        ("8xH200", "moonshotai/Kimi-K2.6"),
        ("A100-80G", "kimi-k2.6-awq"),
        ("A100-80G", "moonlight-16b-a3b"),
        ("2xT4", "llama-3.1-8b"),
    ],
)
def test_what_fits_is_not_refused(gpu: str, model: str) -> None:
    check_feasible(find_gpu(gpu), find_model(model), "0.21.0")


SHAPES = sorted(catalogue_models())
GPUS = ["A100-80G", "H100", "H200", "L4", "B200", "A100-40G"]
configs = st.fixed_dictionaries(
    {
        "max-num-seqs": st.integers(1, 2048),
        "max-num-batched-tokens": st.integers(1, 32768),
        "gpu-memory-utilization": st.floats(0.05, 1.0),
        "block-size": st.sampled_from([16, 32, 64, 128]),
        "tensor-parallel-size": st.sampled_from([1, 2, 4]),
    },
    optional={
        "enforce-eager": st.booleans(),
        "kv-cache-dtype": st.sampled_from(["auto", "fp8"]),
        "max-model-len": st.sampled_from([1024, 8192, "auto", -1]),
    },
)
anywhere = st.tuples(
    st.sampled_from(GPUS), st.sampled_from(SHAPES), st.sampled_from(["0.18.0", "0.21.0", "0.33.0"])
)


def _tokens(where: tuple[str, str, str], config: dict[str, Any]) -> int:
    gpu, shape, version = where
    return plan_memory(find_gpu(gpu), find_model(shape), config, version).kv_tokens


@settings(max_examples=60)
@given(anywhere, configs, st.floats(0, 0.5), st.integers(0, 4096))
def test_more_memory_is_never_less_cache(
    where: tuple[str, str, str], config: dict[str, Any], share: float, more: int
) -> None:
    base = _tokens(where, config)
    raised = min(1.0, config["gpu-memory-utilization"] + share)
    assert _tokens(where, config | {"gpu-memory-utilization": raised}) >= base
    assert _tokens(where, config | {"max-num-seqs": config["max-num-seqs"] + more}) <= base
    tokens = config["max-num-batched-tokens"] + more
    assert _tokens(where, config | {"max-num-batched-tokens": tokens}) <= base
    assert _tokens(where, config | {"enforce-eager": True}) >= base
    assert _tokens(where, config | {"kv-cache-dtype": "fp8"}) >= base
    assert _tokens(where, config | {"tensor-parallel-size": 8}) >= base or base == 0


@settings(max_examples=60)
@given(anywhere, configs)
def test_a_plan_adds_up(where: tuple[str, str, str], config: dict[str, Any]) -> None:
    gpu, shape = find_gpu(where[0]), find_model(where[1])
    plan = plan_memory(gpu, shape, config, where[2])
    terms = plan.weights_gib + plan.activation_gib + plan.graph_gib + plan.other_gib + plan.kv_gib
    assert terms == pytest.approx(config["gpu-memory-utilization"] * gpu.memory_gib)
    assert plan.kv_tokens == plan.kv_blocks * plan.block_size >= 0
    assert min(plan.weights_gib, plan.activation_gib, plan.other_gib) > 0


@settings(max_examples=40)
@given(anywhere, configs, st.floats(-2, 2))
def test_calibration_meets_what_it_was_told(
    where: tuple[str, str, str], config: dict[str, Any], off: float
) -> None:
    model = MemoryModel(find_gpu(where[0]), find_model(where[1]), where[2])
    told = model.plan(config).kv_gib + off
    again = model.calibrated(config, kv_gib=told)
    assert again.plan(config).kv_gib == pytest.approx(told, abs=1e-9)
    assert again.calibrated(config, kv_gib=told).plan(config).kv_gib == pytest.approx(told, abs=1e-9)
    fewer = config | {"max-num-seqs": max(1, config["max-num-seqs"] // 2)}
    assert again.plan(fewer).kv_gib >= again.plan(config).kv_gib


@given(anywhere)
def test_an_empty_configuration_is_the_defaults(where: tuple[str, str, str]) -> None:
    gpu, shape = find_gpu(where[0]), find_model(where[1])
    full = effective_defaults(gpu, shape, where[2])
    assert plan_memory(gpu, shape, {}, where[2]) == plan_memory(gpu, shape, full, where[2])
