"""The search spaces that ship with the project, from a checkout or from an installed wheel."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import BadRequest

_PACKAGE = Path(__file__).parents[1]


def spaces_dir() -> Path:
    """The folder of the shipped space files.

    Raises:
        BadRequest: it is missing.
    """
    for folder in (_PACKAGE / "search_spaces", _PACKAGE.parent / "search_spaces"):
        if (folder / "default.yaml").is_file():
            return folder
    raise BadRequest(f"the search spaces are missing beside {_PACKAGE}", "install kimi-tune again")


def shipped_spaces() -> dict[str, Path]:
    """The shipped space files by name."""
    return {path.stem: path for path in sorted(spaces_dir().glob("*.yaml"))}


def space_for(gpu_name: str) -> Path:
    """The shipped space of a GPU: its own file, else that of its family and memory ("H100-PCIe-80G" and
    "H100-80G-PCIe" take h100-80g.yaml), else default.yaml.
    """
    spaces = shipped_spaces()
    family, *rest = gpu_name.lower().split("-")
    names = ["-".join([family, *rest]), *(f"{family}-{part}" for part in rest), "default"]
    return next(spaces[name] for name in names if name in spaces)
