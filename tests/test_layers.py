"""The tree's imports go in one direction (DESIGN: the way of the data)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tuner"
COMMON = {"errors", "loops", "masking", "spec", "hardware", "models", "traces"}
ALLOWED = {
    "errors": set(),
    "loops": set(),
    "masking": set(),
    "spec": {"errors"},
    "hardware": {"errors", "spec"},
    "models": {"errors", "spec", "hardware"},
    "traces": {"errors", "loops", "spec"},
    "space": COMMON,
    "replay": COMMON,
    "measure": COMMON | {"replay"},
    "engines.base": COMMON | {"replay", "space"},
    "engines.vllm": COMMON | {"engines.base", "replay", "space"},
    "engines.simulated": COMMON | {"engines.base", "replay", "space"},
    "slots": COMMON | {"engines.base", "replay", "space"},
    "profiles": COMMON | {"space"},
    "study": COMMON | {"measure", "engines.base", "space", "profiles", "replay"},
    "report": COMMON | {"study", "profiles", "measure", "engines.base", "space", "replay"},
}


def room_of(parts: tuple[str, ...]) -> str | None:
    """The room of a dotted module path below `tuner`."""
    if not parts:
        return None
    if parts[0] == "engines" and len(parts) > 1:
        return ".".join(parts[:2])
    return parts[0]


def imports(path: Path) -> set[str]:
    """Rooms that a module imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = tuple(name.split("."))
            if parts[0] == "tuner" and (room := room_of(parts[1:])):
                found.add(room)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    room = room_of(tuple(p for p in parts if p != "__init__"))
    if room is None or room == "cli" or room == "__main__" or room == "engines":
        return
    foreign = imports(path) - {room, "engines", "__version__"}
    assert foreign <= ALLOWED[room], f"{room} imports {sorted(foreign - ALLOWED[room])}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
