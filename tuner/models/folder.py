"""Model folders and the Hugging Face hub cache: where a model's config.json and weights lie."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.errors import BadRequest
from tuner.models.config import shape_from_config
from tuner.models.shape import ModelShape

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
# Files that end like weights and hold none.
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "scheduler.bin")
# Mistral's folders hold the same weights a second time under this name.
_TWICE = "consolidated"
_HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+$")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadRequest(
            f"{path.parent} has no {path.name}", "give the folder of a Hugging Face model"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"{path}, line {error.lineno}: broken JSON ({error.msg})", "mend the file") from None
    if not isinstance(value, dict):
        raise BadRequest(f"{path} is not a JSON object", "mend the file")
    return value


def _weight_files(folder: Path) -> list[Path]:
    try:
        files = [
            f for f in folder.iterdir() if f.suffix in _SUFFIXES and f.name not in _NO_WEIGHTS and f.is_file()
        ]
    except OSError:
        return []
    once = [f for f in files if not f.name.startswith(_TWICE)] or files
    return [f for f in once if f.suffix == ".safetensors"] or once


def has_weights(folder: Path) -> bool:
    """Whether the folder holds weight files (else vLLM can serve it with --load-format dummy only)."""
    return bool(_weight_files(folder))


def stored_weight_bytes(folder: Path) -> int:
    """Bytes of the checkpoint: the index's total, else the files' sizes, else 0."""
    for name in _INDEXES:
        if (folder / name).is_file():
            metadata = _read_object(folder / name).get("metadata")
            total = metadata.get("total_size") if isinstance(metadata, dict) else None
            if isinstance(total, int | float) and not isinstance(total, bool) and total > 0:
                return int(total)
    return sum(f.stat().st_size for f in _weight_files(folder))


def shape_from_folder(folder: Path, name: str | None = None) -> ModelShape:
    """The shape of the model in `folder`, with the bytes of its weights where they are there.

    Raises:
        BadRequest: no config.json, or one that cannot be used.
    """
    config = _read_object(folder / "config.json")
    if "quantization_config" not in config and (folder / "quantize_config.json").is_file():
        config["quantization_config"] = {"quant_method": "gptq"} | _read_object(
            folder / "quantize_config.json"
        )
    shape = shape_from_config(config, name or str(folder), str(folder))
    stored = stored_weight_bytes(folder)
    if shape.quantization is None and _dtype(config) == "float32":
        stored //= 2  # vLLM serves such weights in 16 bits
    return replace(shape, weight_bytes=stored)


def _dtype(config: Mapping[str, Any]) -> str:
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    found = next((c[k] for c in (config, inner) for k in ("dtype", "torch_dtype") if c.get(k)), "")
    return str(found).removeprefix("torch.")


def hub_cache() -> Path:
    """The hub's cache folder: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def cached_snapshot(hub_id: str) -> Path | None:
    """The cached folder of `org/name` at its main revision (else the newest one); None where not cached."""
    if not _HUB_ID.match(hub_id):
        return None
    root = hub_cache() / f"models--{hub_id.replace('/', '--')}"
    try:
        revision = (root / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        revision = ""
    if revision and (root / "snapshots" / revision / "config.json").is_file():
        return root / "snapshots" / revision
    found = [f.parent for f in root.glob("snapshots/*/config.json")]
    return max(found, key=lambda f: f.stat().st_mtime, default=None)
