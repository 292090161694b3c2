"""From what the user wrote to a ModelShape: a folder, a hub id, or a catalogue name."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

from tuner.errors import BadRequest
from tuner.models.catalogue import catalogue_models
from tuner.models.folder import cached_snapshot, shape_from_folder
from tuner.models.shape import ModelShape


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _spellings() -> dict[str, str]:
    """Hub ids and short names, each with and without the -Instruct of a chat model, in lower case."""
    found: dict[str, str] = {}
    for name in catalogue_models():
        for text in (name, name.rpartition("/")[2]):
            found.setdefault(_plain(text), name)
            found.setdefault(_plain(text.removesuffix("-Instruct")), name)
    return found


_SPELLINGS = _spellings()


def _catalogued(text: str) -> ModelShape | None:
    """The catalogue's shape under the name as the user wrote it, so that vLLM is asked for that model."""
    known = _SPELLINGS.get(_plain(text))
    if known is None:
        return None
    shape = catalogue_models()[known]
    same_kind = text.lower() != known.lower() and "/" in text
    return replace(shape, name=text) if same_kind else shape


def find_model(text: str) -> ModelShape:
    """The model of a folder with a config.json, a hub id in the hub's cache, or a catalogue name.

    Raises:
        BadRequest: none of these, with the nearest names; or a folder that cannot be used.
    """
    text = text.strip()
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        if (folder / "config.json").exists() or _catalogued(text) is None:
            return shape_from_folder(folder, text)
    if folder.name == "config.json" and folder.is_file():
        return shape_from_folder(folder.parent, str(folder.parent))
    snapshot = cached_snapshot(text)
    if snapshot is not None:
        return shape_from_folder(snapshot, text)
    known = _catalogued(text)
    if known is not None:
        return known
    if text.startswith((".", "/", "~")):
        raise BadRequest(
            f"model {text!r}: there is no such folder", "give the folder of a Hugging Face model"
        )
    near = difflib.get_close_matches(_plain(text), _SPELLINGS, n=3, cutoff=0.4)
    names = list(dict.fromkeys(_SPELLINGS[n] for n in near))
    mend = f"did you mean {' or '.join(names)}?" if names else f"known: {', '.join(catalogue_models())}."
    raise BadRequest(
        f"model {text!r} is neither a folder, nor in the hub's cache, nor in the catalogue",
        f"{mend} Any other: give its folder, or fetch its config.json into the hub's cache",
    )
