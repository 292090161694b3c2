"""What vLLM takes for flags that are left to it."""

from __future__ import annotations

import pytest

from tuner.errors import BadRequest
from tuner.hardware import find_gpu
from tuner.models import find_model
from tuner.space import effective_defaults
from tuner.space.backends import backends, chosen_backend

LLAMA, KIMI = find_model("llama-3.1-8b"), find_model("kimi-k2.6-awq")


@pytest.mark.parametrize(
    ("gpu", "version", "seqs", "tokens"),
    [
        ("A100-80G", "0.21.0", 256, 2048),
        ("A100-80G-PCIe", "0.33.0", 256, 2048),
        ("A100-40G", "0.21.0", 256, 2048),
        ("L4", "0.21.0", 256, 2048),
        ("RTX4090", "0.21.0", 256, 2048),
        ("H100", "0.21.0", 1024, 8192),
        ("H200", "0.21.0", 1024, 8192),
        ("8xH200", "0.33.0", 1024, 8192),
        # only the name A100 makes the exception
        ("A800-80G", "0.21.0", 1024, 8192),
        ("B200", "0.21.0", 1024, 8192),
        ("B200", "0.33.0", 1024, 16384),
        ("cpu", "0.32.0", 128, 2048),
    ],
)
def test_batch_sizes(gpu: str, version: str, seqs: int, tokens: int) -> None:
    values = effective_defaults(find_gpu(gpu), LLAMA, version)
    assert (values["max-num-seqs"], values["max-num-batched-tokens"]) == (seqs, tokens)


@pytest.mark.parametrize(
    ("version", "share"),
    [("0.16.0", 0.90), ("0.19.1", 0.90), ("0.20.0", 0.92), ("0.21.0", 0.92), ("0.32.0+cpu", 0.92)],
)
def test_utilization(version: str, share: float) -> None:
    assert effective_defaults(find_gpu("H100"), LLAMA, version)["gpu-memory-utilization"] == share


@pytest.mark.parametrize(
    ("gpu", "model", "block"),
    [
        ("A100-80G", LLAMA, 16),
        ("A100-80G", KIMI, 16),
        ("H200", KIMI, 16),
        ("B200", LLAMA, 16),
        ("B200", KIMI, 32),
        ("cpu", LLAMA, 128),
        ("cpu", KIMI, 16),
    ],
)
def test_block_size(gpu: str, model: object, block: int) -> None:
    assert effective_defaults(find_gpu(gpu), model, "0.21.0")["block-size"] == block  # type: ignore[arg-type]


def test_the_rest() -> None:
    values = effective_defaults(find_gpu("A100-80G"), KIMI, "0.21.0")
    assert values["max-model-len"] == 131072
    assert values["swap-space"] == 0
    assert values["enable-prefix-caching"] is True and values["enable-chunked-prefill"] is True
    assert values["tensor-parallel-size"] == 1 and values["kv-cache-dtype"] == "auto"
    assert values["async-scheduling"] is True
    assert effective_defaults(find_gpu("cpu"), LLAMA, "0.32.0")["async-scheduling"] is False


def test_flags_come_with_their_version() -> None:
    gpu = find_gpu("H200")
    assert "performance-mode" not in effective_defaults(gpu, LLAMA, "0.16.0")
    assert effective_defaults(gpu, LLAMA, "0.17.0")["performance-mode"] == "balanced"
    assert "max-num-active-seqs" not in effective_defaults(gpu, LLAMA, "0.30.0")
    assert "max-num-active-seqs" in effective_defaults(gpu, LLAMA, "0.31.0")


def test_a_version_that_is_none() -> None:
    with pytest.raises(BadRequest, match="'newest'"):
        effective_defaults(find_gpu("H200"), LLAMA, "newest")


def test_backends() -> None:
    """TRITON_MLA is all that an A100 has for Kimi; the logs of the H200 show the other two lists."""

    def names(gpu: str, model: object) -> list[str]:
        return [b.name for b in backends(find_gpu(gpu), model, "0.21.0")]  # type: ignore[arg-type]

    assert names("A100-80G", KIMI) == ["TRITON_MLA"]
    assert names("H200", KIMI) == ["FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"]
    assert names("H200", LLAMA) == ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"]
    assert names("B200", KIMI)[0] == "FLASHINFER_MLA"


def test_a_block_size_can_change_the_backend() -> None:
    gpu = find_gpu("B200")
    chosen = {size: chosen_backend(gpu, KIMI, "0.21.0", size) for size in (64, 48, 40)}
    assert chosen[64] and chosen[64].name == "FLASHINFER_MLA"
    assert chosen[48] and chosen[48].name == "TRITON_MLA"
    assert chosen[40] is None
