"""A password in a storage's address is in nothing that is said, with --verbose and --json too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PASSWORD = "s3c/ret-pw"
JOB = ("--gpu", "A100-80G", "--engine", "sim", "--slo-p99", "30s")


@pytest.mark.parametrize("url", [f"nonsense://u:{PASSWORD}@h/x", f"nonsense://h/x?password={PASSWORD}"])
@pytest.mark.parametrize("command", [JOB, ("worker", "--study", "s")], ids=lambda c: c[0])
def test_passwords_of_a_storage(kimi_tune: Callable[..., Any], command: tuple[str, ...], url: str) -> None:
    ran = kimi_tune(*command, "--storage", url, "--verbose")
    assert ran.code == 2, ran.err
    assert "nonsense://" in ran.err and "***" in ran.err
    assert PASSWORD not in ran.err + ran.out and "s3c" not in ran.err + ran.out
