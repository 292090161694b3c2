"""A model by folder, by the hub's cache, by name; and every way to get it wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import BadRequest
from tuner.models import catalogue_models, find_model, has_weights, kv_bytes_per_token, weight_bytes


@pytest.fixture(autouse=True)
def empty_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No model of this machine's own cache may answer."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "hub"


def write(folder: Path, config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def safetensors(path: Path, numbers: int) -> None:
    """A real safetensors file with one bf16 tensor."""
    header = json.dumps(
        {"w": {"dtype": "BF16", "shape": [numbers], "data_offsets": [0, 2 * numbers]}}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(2 * numbers))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("KIMI-K2.6-AWQ", "kimi-k2.6-awq"),
        ("moonshotai/kimi-k2.6", "moonshotai/Kimi-K2.6"),
        ("qwen/qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B"),
        ("  Moonlight-16B-A3B ", "moonshotai/Moonlight-16B-A3B-Instruct"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert find_model(text).name == name


@pytest.mark.parametrize("name", sorted(catalogue_models()))
def test_every_catalogue_name_finds_itself(name: str) -> None:
    assert find_model(name) == catalogue_models()[name]
    assert find_model(name.rpartition("/")[2].upper()) == catalogue_models()[name]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("qwen3-9b", "Qwen/Qwen3-8B"),
        ("kimi-k2.5", "moonshotai/Kimi-K2.6"),
        ("gpt-neo", "kimi-k2.6-awq"),
        ("./nowhere", "no such folder"),
        ("/nowhere/at/all", "no such folder"),
        ("", "kimi-k2.6-awq"),
    ],
)
def test_a_wrong_name_is_answered(text: str, hint: str) -> None:
    with pytest.raises(BadRequest) as error:
        find_model(text)
    assert hint in str(error.value) and "\n" not in str(error.value)


def test_a_folder(tmp_path: Path, configs: dict[str, Any]) -> None:
    folder = write(tmp_path / "my model", configs["LLAMA_8B"])
    shape = find_model(str(folder))
    assert (shape.path, shape.name) == (str(folder), str(folder))
    assert weight_bytes(shape) == pytest.approx(16.06e9, rel=0.001)
    assert not has_weights(folder)
    assert find_model(str(folder / "config.json")).layers == 32


def test_weights_are_the_files(tmp_path: Path, configs: dict[str, Any]) -> None:
    folder = write(tmp_path / "m", configs["LLAMA_8B"])
    safetensors(folder / "model-00001-of-00002.safetensors", 1000)
    safetensors(folder / "model-00002-of-00002.safetensors", 500)
    (folder / "pytorch_model.bin").write_bytes(b"x" * 9999)  # the same weights once more
    assert has_weights(folder)
    assert 3000 < weight_bytes(find_model(str(folder))) < 3400
    index = {"metadata": {"total_size": 3000}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weight_bytes(find_model(str(folder))) == 3000


def test_training_leftovers_are_no_weights(tmp_path: Path, configs: dict[str, Any]) -> None:
    folder = write(tmp_path / "m", configs["LLAMA_8B"])
    (folder / "training_args.bin").write_bytes(b"x" * 100)
    assert not has_weights(folder)
    assert not has_weights(tmp_path / "missing")


def test_weights_stored_twice_or_in_32_bits(tmp_path: Path, configs: dict[str, Any]) -> None:
    folder = write(tmp_path / "m", configs["MISTRAL_7B"] | {"torch_dtype": "float32"})
    safetensors(folder / "consolidated.safetensors", 1000)
    alone = weight_bytes(find_model(str(folder)))
    assert 1000 < alone < 1100  # 2,000 bytes and a header, served in half of that
    safetensors(folder / "model.safetensors", 1000)
    assert abs(weight_bytes(find_model(str(folder))) - alone) < 10


def test_a_gptq_folder_of_the_old_kind(tmp_path: Path, configs: dict[str, Any]) -> None:
    folder = write(tmp_path / "m", configs["LLAMA_8B"])
    (folder / "quantize_config.json").write_text(json.dumps({"bits": 4, "group_size": 128}))
    assert find_model(str(folder)).weight_bits == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: broken JSON"),
        ('{"hidden_size": 1,\n "x": }', "line 2: broken JSON"),
        ("[]", "not a JSON object"),
        ("{}", "is missing"),
        ("", "broken JSON"),
    ],
)
def test_a_broken_config(tmp_path: Path, text: str, said: str) -> None:
    folder = write(tmp_path / "m", text)
    with pytest.raises(BadRequest) as error:
        find_model(str(folder))
    assert said in str(error.value) and "config.json" in str(error.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadRequest, match="cannot be read"):
        find_model(str(tmp_path))


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="has no config.json"):
        find_model(str(tmp_path))


def test_a_broken_index(tmp_path: Path, configs: dict[str, Any]) -> None:
    folder = write(tmp_path / "m", configs["LLAMA_8B"])
    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(BadRequest, match="index.json, line 1"):
        find_model(str(folder))


def snapshot(hub: Path, hub_id: str, revision: str, config: Any, *, main: str | None) -> Path:
    root = hub / f"models--{hub_id.replace('/', '--')}"
    if main:
        (root / "refs").mkdir(parents=True, exist_ok=True)
        (root / "refs" / "main").write_text(main)
    return write(root / "snapshots" / revision, config)


def test_the_hub_cache_goes_before_the_catalogue(empty_hub: Path, configs: dict[str, Any]) -> None:
    config = configs["QWEN3_4B"] | {"num_hidden_layers": 7}
    snapshot(empty_hub, "Qwen/Qwen3-4B", "old", configs["QWEN3_4B"], main=None)
    folder = snapshot(empty_hub, "Qwen/Qwen3-4B", "new", config, main="new\n")
    shape = find_model("Qwen/Qwen3-4B")
    assert (shape.name, shape.path, shape.layers) == ("Qwen/Qwen3-4B", str(folder), 7)
    assert kv_bytes_per_token(shape) == 7 * 4096


def test_a_cache_without_refs(empty_hub: Path, configs: dict[str, Any]) -> None:
    snapshot(empty_hub, "org/other", "abc", configs["MISTRAL_7B"], main=None)
    assert find_model("org/other").heads == 32


def test_hub_cache_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configs: dict[str, Any]
) -> None:
    snapshot(tmp_path / "elsewhere", "org/m", "r", configs["MISTRAL_7B"], main="r")
    with pytest.raises(BadRequest):
        find_model("org/m")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert find_model("org/m").layers == 32
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    snapshot(tmp_path / "xdg" / "huggingface" / "hub", "org/m", "r", configs["GEMMA2_9B"], main="r")
    assert find_model("org/m").layers == 42
