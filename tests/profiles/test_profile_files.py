"""Profile files: written and read back, and exact about what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported import make_profile

from tuner.errors import BadRequest
from tuner.profiles import SCHEMA_VERSION, load_profile, profile_to_json, save_profile


def test_a_simulated_profile_says_so_in_its_first_line(tmp_path: Path) -> None:
    save_profile(make_profile(), tmp_path / "p.yaml")
    assert "SIMULATED" in (tmp_path / "p.yaml").read_text().splitlines()[0]
    save_profile(make_profile(provenance="measured"), tmp_path / "p.yaml")
    assert "SIMULATED" not in (tmp_path / "p.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda values: values.pop(key)


def put(value: object, *keys: Any) -> Callable[[dict[str, Any]], object]:
    def change(values: Any) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("gpu"), "gpu is missing"),
        (put(1, "surprise"), "surprise: not a field"),
        (put("many", "requests"), "requests: a whole number is needed, not 'many'"),
        (put(True, "requests"), "requests: a whole number is needed, not True"),
        (put("fast", "winner", "throughput_rps"), "winner: throughput_rps: a number is needed"),
        (put([1.0], "window"), "window: a list of 2 is needed"),
        (put(float("inf"), "winner", "startup_s"), "startup_s: a finite number of at least 0"),
        (put(-1.0, "winner", "throughput_rps"), "throughput_rps: a finite number of at least 0"),
        (put(float("inf"), "slo", "e2e_p99_s"), "slo: e2e_p99_s: a finite number"),
        (put("", "model"), "model: a model's name or folder is needed"),
        (put("--port", "model"), "model: a model's name or folder is needed"),
        (put(1, "winner", "flags", "x; rm -rf /"), "x; rm -rf /: not a flag's name"),
        (put("guessed", "provenance"), "provenance: one of measured, simulated is needed"),
        (put("4.x", "vllm_version"), "vllm_version: a vLLM version is needed"),
        (put([], "winner", "flags"), "winner: flags: a mapping is needed"),
        (put("x", "users_table", 0, "users"), r"users_table\[0\]: users: a whole number"),
        (put(float("nan"), "gain"), "gain: a number is needed"),
        (put(SCHEMA_VERSION + 1, "schema"), "newer than this kimi-tune knows"),
        (put(0, "schema"), "schema 0 does not exist"),
        (drop("schema"), "schema is missing"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    values = profile_to_json(make_profile())
    change(values)
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(BadRequest, match=said) as refused:
        load_profile(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "schema is missing"),
        (b"- a", "mapping"),
        (b"a: [", ":1: not YAML"),
        (b"\xff\xfe\x00", "not text|not YAML"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "profile.yaml"
    path.write_bytes(content)
    with pytest.raises(BadRequest, match=said):
        load_profile(path)


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        load_profile(tmp_path / "none.yaml")
    with pytest.raises(BadRequest, match="cannot be written"):
        save_profile(make_profile(), tmp_path / "none" / "profile.yaml")
