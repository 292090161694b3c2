"""Run command lines as a user would, in an empty folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import run


@dataclass
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout, which has to be one JSON value."""
        assert self.out, f"exit {self.code}, nothing on stdout: {self.err}"
        return json.loads(self.out)


Command = Callable[..., Ran]


@pytest.fixture
def kimi_tune(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`kimi_tune("--gpu", "A100-80G", …)` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str | Path) -> Ran:
        capsys.readouterr()
        code = run([str(word) for word in argv])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
