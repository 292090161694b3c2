"""The manual is current, and every page of it reads like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner import __version__
from tuner.cli.manual import manual, pages

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
PAGES = dict(pages())


def test_the_manual_is_current() -> None:
    assert DOCS.read_text() == manual(), "run: python -m tuner.cli.manual docs/cli.md"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_command_has_an_example_and_lines_that_fit(name: str) -> None:
    text = PAGES[name]
    assert "Usage:" in text and all(len(line) <= 100 for line in text.splitlines())
    usage, _, commands = text.partition("Commands:")
    assert "..." not in commands, "a command's line is cut: give it a short_help"
    if not commands:
        assert "Example" in usage and name in usage.split("Example")[1]


def test_the_version_is_one_line(kimi_tune) -> None:
    ran = kimi_tune("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"kimi-tune {__version__}\n", "")
