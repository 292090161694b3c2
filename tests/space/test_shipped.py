"""The files that ship: found from a checkout, from an installed package, and whole in a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
from pathlib import Path
import tuner
from tuner.space import flag_table, shipped_versions
from tuner.space.shipped import shipped_spaces, spaces_dir
from tuner.space.space_file import read_space_file
assert Path(tuner.__file__).is_relative_to(Path(PLACE)), tuner.__file__
assert spaces_dir().is_relative_to(Path(PLACE)), spaces_dir()
for path in shipped_spaces().values():
    read_space_file(path, flag_table("0.21.0"))
print(len(shipped_spaces()), len(shipped_versions()))
"""


def probe(place: Path, empty: Path) -> str:
    """Run the package that lies in `place` from an empty folder."""
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(place)}
    script = PROBE.replace("PLACE", repr(str(place)))
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=empty, env=environment, capture_output=True, text=True, check=True
    ).stdout


EXPECTED = f"{len(list((ROOT / 'search_spaces').glob('*.yaml')))} "


def test_an_installed_package_has_its_spaces_inside(tmp_path: Path) -> None:
    place = tmp_path / "site"
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    shutil.copytree(ROOT / "tuner", place / "tuner", ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in include["force-include"].items():
        shutil.copytree(ROOT / source, place / target)
    assert probe(place, tmp_path / "empty").startswith(EXPECTED)


def test_a_checkout_has_them_beside(tmp_path: Path) -> None:
    assert probe(ROOT, tmp_path / "empty").startswith(EXPECTED)


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    answer = subprocess.run(
        [sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wheel = zipfile.ZipFile(tmp_path / answer.stdout.split()[-1])
    names = set(wheel.namelist())
    assert {f"tuner/search_spaces/{p.name}" for p in (ROOT / "search_spaces").iterdir()} <= names
    assert "tuner/space/data/vllm_flags.json" in names
    wheel.extractall(tmp_path / "site")
    assert probe(tmp_path / "site", tmp_path / "empty").startswith(EXPECTED)
