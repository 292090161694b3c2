"""Each rule refuses what it should and nothing else; together they never raise, nor contradict memory."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.hardware import find_gpu
from tuner.models import catalogue_models, find_model
from tuner.space import LaunchConfig, Rules, effective_defaults, plan_memory
from tuner.space.checks import CHECKS
from tuner.traces.trace import Trace, TraceSource

A100, H200, B200 = find_gpu("A100-80G"), find_gpu("H200"), find_gpu("B200")
KIMI, LLAMA, MOONLIGHT = (
    find_model("kimi-k2.6-awq"),
    find_model("llama-3.1-8b"),
    find_model("moonlight-16b-a3b"),
)
CPU, SMALL = find_gpu("cpu"), replace(find_model("qwen3-0.6b"), max_model_len=4096)


def trace(lengths: list[int]) -> Trace:
    """Requests of these total lengths, one a second."""
    n = len(lengths)
    total = np.array(lengths, dtype=np.int32)
    output = np.minimum(total, 10)
    return Trace(
        arrival_s=np.arange(n, dtype=np.float64),
        input_tokens=total - output,
        output_tokens=output,
        session=np.arange(n, dtype=np.int64),
        block_offsets=np.zeros(n + 1, dtype=np.int64),
        block_ids=np.zeros(0, dtype=np.int64),
        block_tokens=0,
        source=TraceSource("test"),
    )


@pytest.mark.parametrize(
    ("config", "rule", "flag"),
    [
        ({"max-num-seqs": 0}, "positive", "max-num-seqs"),
        ({"max-model-len": 0}, "positive", "max-model-len"),
        ({"gpu-memory-utilization": 0.0}, "utilization", "gpu-memory-utilization"),
        ({"gpu-memory-utilization": 1.2}, "utilization", "gpu-memory-utilization"),
        ({"gpu-memory-utilization": 1.0}, "utilization", "gpu-memory-utilization"),
        ({"max-model-len": 131073}, "model-length", "max-model-len"),
        ({"max-model-len": "256K"}, "model-length", "max-model-len"),
        ({"max-num-seqs": 4096}, "batched-tokens", "max-num-batched-tokens"),
        ({"max-num-batched-tokens": 255, "max-num-seqs": 256}, "batched-tokens", "max-num-batched-tokens"),
        (
            {"enable-chunked-prefill": False, "max-num-batched-tokens": 8191, "max-model-len": 8192},
            "whole-prompts",
            "max-num-batched-tokens",
        ),
        ({"block-size": 8}, "block-size", "block-size"),
        ({"block-size": 24}, "block-size", "block-size"),
        ({"tensor-parallel-size": 3}, "heads", "tensor-parallel-size"),
        ({"tensor-parallel-size": 2}, "gpus", "tensor-parallel-size"),
        ({"data-parallel-size": 2}, "gpus", "tensor-parallel-size"),
        ({"gpu-memory-utilization": 0.3}, "weights", "gpu-memory-utilization"),
        ({"gpu-memory-utilization": 0.335}, "kv-memory", "gpu-memory-utilization"),
        (
            {"gpu-memory-utilization": 0.36, "max-model-len": 131072},
            "model-length-over-kv",
            "max-model-len",
        ),
        ({"kv-cache-memory-bytes": 70 * 2**30}, "kv-memory", "kv-cache-memory-bytes"),
        ({"kv-cache-memory-bytes": 1000}, "kv-memory", "kv-cache-memory-bytes"),
    ],
)
def test_each_rule_refuses(config: dict[str, Any], rule: str, flag: str) -> None:
    refusal = Rules(A100, KIMI, "0.21.0").check(LaunchConfig.of(config))
    assert refusal is not None
    assert (refusal.rule, refusal.flag) == (rule, flag)
    assert refusal.rule in CHECKS
    assert flag in refusal.reason or rule in ("gpus", "kv-memory")
    assert refusal.bound is None or refusal.bound.flag == flag


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max-model-len": "auto", "gpu-memory-utilization": 0.36},
        {"max-model-len": -1, "gpu-memory-utilization": 0.36},
        {"max-model-len": "8k"},
        {"max-num-batched-tokens": 100},
        {"enable-chunked-prefill": False, "max-num-batched-tokens": 8192, "max-model-len": 8192},
        {"enable-chunked-prefill": False},
        {"block-size": 48},
        {"gpu-memory-utilization": 0.99},
        {"swap-space": 16, "enable-prefix-caching": False},
        {"kv-cache-memory-bytes": 20 * 2**30, "gpu-memory-utilization": 0.01},
        {"performance-mode": "throughput"},
    ],
)
def test_what_starts_is_not_refused(config: dict[str, Any]) -> None:
    assert Rules(A100, KIMI, "0.21.0").check(LaunchConfig.of(config)) is None


@pytest.mark.parametrize("gpu", ["A100-80G", "H200", "B200", "L4", "cpu", "RTX4090"])
@pytest.mark.parametrize("version", ["0.16.0", "0.18.0", "0.21.0", "0.33.0"])
def test_the_baseline_is_never_refused_where_the_model_is_small(gpu: str, version: str) -> None:
    assert Rules(find_gpu(gpu), SMALL, version).check({}) is None


@pytest.mark.parametrize(
    ("gpu", "shape", "version", "good", "bad"),
    [
        (A100, KIMI, "0.21.0", [16, 32, 48, 64, 128], [1, 8, 20]),
        (A100, KIMI, "0.17.0", [16, 32, 64, 128, 256], [1, 8, 48, 512]),
        (H200, LLAMA, "0.21.0", [16, 48, 256], [8, 100]),
        (H200, MOONLIGHT, "0.21.0", [16, 64], [8, 40]),
        (B200, KIMI, "0.21.0", [16, 32, 64, 128], [8]),
        (CPU, SMALL, "0.21.0", [16, 32, 128], [8]),
        (CPU, SMALL, "0.33.0", [32, 128], [16, 48]),
    ],
)
def test_block_sizes(gpu: Any, shape: Any, version: str, good: list[int], bad: list[int]) -> None:
    rules = Rules(gpu, shape, version)
    for size in good:
        assert rules.check({"block-size": size}) is None, size
    for size in bad:
        refusal = rules.check({"block-size": size})
        assert refusal is not None and refusal.rule == "block-size", size


def test_the_logs_refusals_are_ours_too() -> None:
    """The three start-ups of vLLM 0.21.0 on an H200 that died of their configuration."""
    rules = Rules(H200, LLAMA, "0.21.0")
    died = {
        "block-size": {"max-model-len": 8192, "block-size": 8},
        "model-length-over-kv": {"max-model-len": 131072, "gpu-memory-utilization": 0.2},
        "weights": {"max-model-len": 8192, "gpu-memory-utilization": 0.1},
    }
    for rule, config in died.items():
        refusal = rules.check(config)
        assert refusal is not None and refusal.rule == rule
    over = rules.check(died["model-length-over-kv"])
    assert over is not None and over.bound is not None
    assert over.bound.max == pytest.approx(84704, rel=0.01)  # "estimated maximum model length is 84704"


@pytest.mark.parametrize(("version", "spare"), [("0.21.0", 0), ("0.32.0", 1)])
def test_later_versions_set_a_block_aside(version: str, spare: int) -> None:
    config = {"kv-cache-memory-bytes": 100 * 16 * 36864, "max-model-len": (100 - spare) * 16}
    rules = Rules(A100, KIMI, version)
    assert rules.check(config) is None
    refusal = rules.check(config | {"max-model-len": (100 - spare) * 16 + 1})
    assert refusal is not None and refusal.rule == "model-length-over-kv"


def test_graphs_outside_the_budget() -> None:
    config = {"gpu-memory-utilization": 0.988}
    assert Rules(A100, KIMI, "0.21.0").check(config) is None
    refusal = Rules(A100, KIMI, "0.18.0").check(config)
    assert refusal is not None and refusal.rule == "graphs-outside"


def test_coverage_of_the_trace() -> None:
    lengths = [100] * 98 + [5000, 9000]
    rules = Rules(A100, KIMI, "0.21.0", trace(lengths))
    refusal = rules.check({"max-model-len": 4999})
    assert refusal is not None and refusal.rule == "coverage"
    assert refusal.bound is not None and refusal.bound.min == 5000
    assert rules.check({"max-model-len": 5000}) is None
    assert rules.check({"max-model-len": "auto"}) is None
    traded = Rules(A100, KIMI, "0.21.0", trace(lengths), coverage=0.95)
    assert traded.check({"max-model-len": 100}) is None
    assert traded.check({"max-model-len": 99}) is not None


def test_a_trace_longer_than_the_model_leaves_the_models_own_length() -> None:
    rules = Rules(H200, MOONLIGHT, "0.21.0", trace([50_000] * 50))
    assert rules.check({}) is None
    assert rules.check({"max-model-len": 8191}) is not None


@given(st.lists(st.integers(2, 20_000), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_the_shortest_length_covers_and_is_the_shortest(lengths: list[int], coverage: float) -> None:
    traffic = trace(lengths)
    rules = Rules(A100, KIMI, "0.21.0", traffic, coverage)
    refusal = rules.check({"max-model-len": 1})
    assert refusal is not None and refusal.bound is not None and refusal.bound.min is not None
    shortest = int(refusal.bound.min)
    assert traffic.coverage(shortest) >= coverage - 1e-9
    assert traffic.coverage(shortest - 1) < coverage


def test_an_empty_trace_asks_for_nothing() -> None:
    assert Rules(A100, KIMI, "0.21.0", trace([])).check({"max-model-len": 16}) is None


def test_learned_bounds() -> None:
    rules = Rules(A100, KIMI, "0.21.0")
    config = {"max-num-seqs": 512, "max-model-len": 65536}
    assert rules.check(config) is None
    rules.learn("max-num-seqs", max=400, reason="CUDA out of memory when warming up the sampler")
    refusal = rules.check(config)
    assert refusal is not None and refusal.rule == "learned"
    assert "at most 400" in refusal.reason and "out of memory" in refusal.reason
    assert refusal.bound == rules.learned[0]
    assert rules.check({"max-num-seqs": 400}) is None
    rules.learn("max-model-len", max=32768)
    rules.learn("max-model-len", max=32768)
    rules.learn("max-model-len")
    assert len(rules.learned) == 2
    refusal = rules.check({})  # the default length is a value like any other
    assert refusal is not None and refusal.flag == "max-model-len"
    assert rules.check({"max-model-len": "auto"}) is None


def test_a_bound_of_memory_holds_where_there_is_no_more_memory() -> None:
    rules = Rules(A100, KIMI, "0.21.0")
    taught_by = {"gpu-memory-utilization": 0.4, "max-model-len": 131072}
    assert rules.check(taught_by) is None
    rules.learn("max-model-len", max=84704, reason="estimated maximum model length", config=taught_by)
    assert rules.check(taught_by) is not None
    assert rules.check(taught_by | {"max-model-len": 65536}) is None
    assert rules.check({"gpu-memory-utilization": 0.9, "max-model-len": 131072}) is None
    rules.learn("block-size", min=64, config=taught_by)
    assert rules.check({"block-size": 32}) is not None


def test_observation_moves_the_memory_rules() -> None:
    rules = Rules(A100, KIMI, "0.21.0")
    config = {"gpu-memory-utilization": 0.4, "max-model-len": 131072}
    assert rules.check(config) is None
    rules.observe({"gpu-memory-utilization": 0.9}, kv_gib=rules.memory.plan({}).kv_gib - 10.0)
    refusal = rules.check(config)
    assert refusal is not None and refusal.rule in ("kv-memory", "model-length-over-kv")


# The types that the default space and `--set` give, and values far outside it.
_NUMBERS = (
    st.integers(-2, 10**6)
    | st.integers()
    | st.floats(allow_nan=True)
    | st.none()
    | st.booleans()
    | st.text(max_size=4)
)
CONFIGS = st.dictionaries(
    st.sampled_from(
        [
            *effective_defaults(A100, KIMI, "0.33.0"),
            "kv-cache-memory-bytes",
            "cudagraph-capture-sizes",
            "max-cudagraph-capture-size",
            "kv-offloading-size",
        ]
    ),
    _NUMBERS | st.lists(st.integers(-5, 2000), max_size=5).map(tuple),
    max_size=6,
)
_SPACE = st.fixed_dictionaries(
    {},
    optional={
        "max-num-seqs": st.integers(8, 2048),
        "max-num-batched-tokens": st.integers(256, 16384),
        "max-model-len": st.integers(256, 262144),
        "gpu-memory-utilization": st.integers(10, 100).map(lambda n: n / 100),
        "block-size": st.sampled_from([1, 8, 16, 32, 64, 128]),
        "enable-prefix-caching": st.booleans(),
        "swap-space": st.sampled_from([0, 4, 16]),
    },
)
_RULES = [
    Rules(find_gpu(gpu), shape, version)
    for gpu in ("A100-80G", "2xH200", "L4", "cpu")
    for shape in (KIMI, LLAMA, find_model("moonshotai/Kimi-K2.6"))
    for version in ("0.17.0", "0.21.0", "0.33.0")
]


@settings(max_examples=300)
@given(st.sampled_from(_RULES), CONFIGS)
def test_rules_never_raise(rules: Rules, config: dict[str, Any]) -> None:
    refusal = rules.check(LaunchConfig.of(config))
    assert refusal is None or (refusal.reason and "\n" not in refusal.reason.replace("\r", "\n"))


@settings(max_examples=200)
@given(st.sampled_from(sorted(catalogue_models())), _SPACE)
def test_what_passes_has_room(model: str, config: dict[str, Any]) -> None:
    shape = find_model(model)
    refusal = Rules(A100, shape, "0.21.0").check(config)
    plan = plan_memory(A100, shape, config, "0.21.0")
    if refusal is None:
        assert plan.kv_tokens >= config.get("max-model-len", shape.max_model_len)
        assert plan.weights_gib + plan.activation_gib < A100.memory_gib
    elif refusal.rule in ("weights", "kv-memory"):
        assert plan.kv_blocks <= 1


@settings(max_examples=200)
@given(_SPACE)
def test_a_bound_is_true_of_what_it_refuses(config: dict[str, Any]) -> None:
    """The value refused lies outside the bound given for it."""
    refusal = Rules(A100, KIMI, "0.21.0", trace([3000] * 10)).check(config)
    if refusal is None or refusal.bound is None:
        return
    values = effective_defaults(A100, KIMI, "0.21.0") | config
    assert not refusal.bound.allows(values[refusal.bound.flag])  # type: ignore[arg-type]


def test_rules_have_their_order_and_plain_names() -> None:
    names = list(CHECKS)
    assert names.index("weights") < names.index("kv-memory") < names.index("model-length-over-kv")
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
