"""The values in force of a configuration that leaves some flags to vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.hardware import find_gpu
from tuner.models import find_model
from tuner.space import LaunchConfig
from tuner.space.effective import AUTO, Effective, Resolver, whole

RESOLVE = Resolver(find_gpu("A100-80G"), find_model("kimi-k2.6-awq"), "0.21.0")


def values(**flags: Any) -> Effective:
    return RESOLVE(LaunchConfig.of({name.replace("_", "-"): value for name, value in flags.items()}))


@pytest.mark.parametrize(
    ("flags", "seqs", "tokens"),
    [
        ({}, 256, 2048),
        ({"max_num_seqs": 512}, 512, 2048),
        ({"max_num_batched_tokens": 100}, 100, 100),
        ({"max_num_batched_tokens": 8192}, 256, 8192),
        ({"max_num_seqs": 100, "max_num_batched_tokens": 50}, 100, 50),
        ({"performance_mode": "throughput"}, 512, 4096),
        ({"performance_mode": "throughput", "max_num_seqs": 64}, 64, 4096),
        ({"enable_chunked_prefill": False}, 256, 131072),
        ({"enable_chunked_prefill": False, "max_model_len": "auto"}, 256, 131072),
        ({"enable_chunked_prefill": False, "max_model_len": 1024}, 256, 2048),
        # no more tokens than all sequences can hold
        ({"max_num_seqs": 2, "max_model_len": 256}, 2, 512),
    ],
)
def test_batch(flags: dict[str, Any], seqs: int, tokens: int) -> None:
    found = values(**flags)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (seqs, tokens)


@pytest.mark.parametrize(
    ("value", "length"),
    [("auto", AUTO), (-1, AUTO), ("8k", 8000), ("8K", 8192), ("1M", 2**20), (4096, 4096), (None, 131072)],
)
def test_max_model_len(value: Any, length: int) -> None:
    assert values(max_model_len=value).max_model_len == length


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), (3.0, 3), ("3", 3), ("2.5k", 2500), ("k", None), ("", None), ("many", None), ((1,), None)],
)
def test_whole_numbers(value: object, number: int | None) -> None:
    assert whole(value) == number


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1e999", "9e999k"])
def test_no_number_is_not_set(value: object) -> None:
    assert whole(value) is None
    assert values(max_num_seqs=value).max_num_seqs == 256


def test_whole_numbers_stay_countable() -> None:
    assert whole(10**400) == whole("1e300") == 10**15
    assert whole(-(10**400)) == -(10**15)


def test_the_rest() -> None:
    found = values(
        kv_cache_dtype="fp8_e4m3",
        enforce_eager=True,
        gpu_memory_utilization="0.8",
        cudagraph_capture_sizes=[8, 1, 8, 0],
        kv_cache_memory_bytes=2**30,
    )
    assert found.kv_fp8 and found.eager and found.utilization == 0.8
    assert found.capture_sizes == (1, 8) and found.kv_cache_memory_bytes == 2**30
    plain = values()
    assert not plain.kv_fp8 and not plain.eager and plain.utilization == 0.92
    assert plain.capture_sizes is None and plain.kv_cache_memory_bytes is None
    assert (plain.tensor_parallel, plain.block_size, plain.chunked_prefill) == (1, 16, True)
