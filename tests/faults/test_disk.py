"""A full disk and a folder that cannot be written: one line, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TUNE = [sys.executable, "-m", "tuner", "--gpu", "A100-80G", "--slo-p99", "30s", "--trials", "2", "--json"]
SCRIPT = """
set -u
mount -t tmpfs -o "size=$1" none "$2" || exit 97
cd "$2"; shift 2
"$@" > "$OUT.1.json" 2> "$OUT.1.err"; echo $? > "$OUT.1.rc"
mount -o remount,size=60m none . || exit 98
"$@" > "$OUT.2.json" 2> "$OUT.2.err"; echo $? > "$OUT.2.rc"
"""
"""Runs a command on a disk of its own of a given size, and once more when the disk has grown."""


def unshare() -> list[str] | None:
    """A command that runs another as root of a namespace of its own, where that is allowed here."""
    found = shutil.which("unshare")
    if found is None:
        return None
    tried = subprocess.run([found, "-rm", "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True)  # noqa: S108
    return [found, "-rm"] if tried.returncode == 0 else None


def on_a_disk_of(size: str, tmp_path: Path) -> list[tuple[int, dict[str, Any], str]]:
    """(exit code, stdout's JSON, stderr) of the two runs."""
    namespace = unshare()
    if namespace is None:
        pytest.skip("mounting a small disk is not allowed here")
    place = tmp_path / "disk"
    place.mkdir()
    environment = {
        **os.environ,
        "OUT": str(tmp_path / "run"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
    }
    command = [*namespace, "sh", "-c", SCRIPT, "sh", size, str(place), *TUNE]
    subprocess.run(command, env=environment, check=True, timeout=300)
    runs = []
    for number in (1, 2):
        code = int((tmp_path / f"run.{number}.rc").read_text())
        out = json.loads((tmp_path / f"run.{number}.json").read_text())
        runs.append((code, out, (tmp_path / f"run.{number}.err").read_text()))
    return runs


def test_a_full_disk_ends_in_one_line_and_the_study_goes_on_when_there_is_room(tmp_path: Path) -> None:
    (code, out, err), (code_2, out_2, err_2) = on_a_disk_of("200k", tmp_path)
    assert code == 5, err
    assert "full" in out["error"]["what"] or "No space left" in out["error"]["what"]
    assert "goes on where it stopped" in out["error"]["mend"]
    assert "Traceback" not in err + err_2
    assert code_2 == 0, err_2
    assert out_2["recommendation"] in ("tuned", "default")
    assert sum(out_2["trials"].values()) == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    namespace = unshare()
    if namespace is None:
        pytest.skip("mounting a read-only disk is not allowed here")
    place = tmp_path / "disk"
    place.mkdir()
    script = 'mount -t tmpfs -o ro none "$1" && shift && cd "$1" && shift && exec "$@"'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [
        *namespace,
        "sh",
        "-c",
        script,
        "sh",
        str(place),
        str(tmp_path),
        *TUNE,
        "--studies",
        str(place),
    ]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2, ran.stderr
    assert str(place) in json.loads(ran.stdout)["error"]["what"]
    assert "Traceback" not in ran.stderr
