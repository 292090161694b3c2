"""A stepping wall clock touches no duration and no budget: nothing but a date is taken from it."""

from __future__ import annotations

import ast
from pathlib import Path

import tuner

WALL = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
DATES = {
    "study/conclude.py": "the date in a profile",
    "traces/recorder/proxy.py": "a recording's epoch, read once; arrivals count from it by the steady clock",
}


def wall_clock(source: str) -> set[str]:
    """The calls in a module that read the wall clock."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            found.add(f"{owner}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {f"time.{name.name}" for name in node.names}
    return found & WALL


def test_the_check_sees_what_it_looks_for() -> None:
    assert wall_clock("import time\nbegan = time.time()") == {"time.time"}
    assert wall_clock("from time import time") == {"time.time"}
    assert wall_clock("import datetime\ndatetime.datetime.now()") == {"datetime.now"}
    assert not wall_clock("import time\ntime.monotonic() - time.perf_counter()")


def test_only_dates_come_from_the_wall_clock() -> None:
    root = Path(tuner.__file__).parent
    modules = {str(path.relative_to(root)): wall_clock(path.read_text()) for path in root.rglob("*.py")}
    assert {name for name, found in modules.items() if found} == set(DATES)
