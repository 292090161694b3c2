"""Configurations as command lines, read back by an argparse made from the table of flags."""

from __future__ import annotations

import argparse
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.space import Flag, FlagKind, FlagTable, LaunchConfig, flag_table, rendered, to_argv


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, []),
        ({"max-num-seqs": 256}, ["--max-num-seqs", "256"]),
        ({"max-num-seqs": 256.0}, ["--max-num-seqs", "256"]),
        ({"gpu-memory-utilization": 0.9}, ["--gpu-memory-utilization", "0.9"]),
        ({"enable-prefix-caching": True}, ["--enable-prefix-caching"]),
        ({"enable-prefix-caching": False}, ["--no-enable-prefix-caching"]),
        ({"headless": False}, []),
        ({"headless": True}, ["--headless"]),
        ({"max-model-len": None}, []),
        ({"max-model-len": -1}, ["--max-model-len", "-1"]),
        ({"max-model-len": "auto"}, ["--max-model-len", "auto"]),
        ({"cudagraph-capture-sizes": (1, 2, 4)}, ["--cudagraph-capture-sizes", "1", "2", "4"]),
        ({"served-model-name": "m"}, ["--served-model-name", "m"]),
        ({"middleware": ("a.b", "c.d")}, ["--middleware", "a.b", "--middleware", "c.d"]),
        ({"allowed-origins": ("*",)}, ["--allowed-origins", '["*"]']),
        ({"compilation-config": '{"mode":3}'}, ["--compilation-config", '{"mode":3}']),
        ({"compilation-config": {"b": [1], "a": True}}, ["--compilation-config", '{"a":true,"b":[1]}']),
        ({"compilation-config.mode": 3}, ["--compilation-config.mode", "3"]),
        ({"chat-template": "--odd"}, ["--chat-template=--odd"]),
        ({"hf-token": True}, ["--hf-token"]),
        ({"swap-space": 0}, []),
        ({"swap-space": None}, []),
        ({"swap-space": 4}, ["--kv-offloading-size", "4"]),
        ({"swap-space": 2.5}, ["--kv-offloading-size", "2.5"]),
        ({"block-size": 16, "async-scheduling": False}, ["--no-async-scheduling", "--block-size", "16"]),
    ],
)
def test_words(config: dict, words: list[str]) -> None:
    assert to_argv(config, "0.21.0") == words


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.16.0", "swap-space"),
        ("0.17.1", "swap-space"),
        ("0.18.0rc1", "swap-space"),
        ("0.18.0", "kv-offloading-size"),
        ("v0.21.0", "kv-offloading-size"),
        ("0.32.0+cpu", "kv-offloading-size"),
    ],
)
def test_swap_space_by_version(version: str, flag: str) -> None:
    assert rendered({"swap-space": 8}, version) == {flag: 8}


def test_one_flag_under_two_names_is_refused() -> None:
    config = {"swap-space": 8, "kv-offloading-size": 4.0}
    with pytest.raises(BadRequest, match="both set"):
        to_argv(config, "0.21.0")
    assert rendered(config, "0.17.0") == config
    assert rendered(config | {"swap-space": 0}, "0.21.0") == {"kv-offloading-size": 4.0}


def test_the_order_does_not_depend_on_the_configuration() -> None:
    flags = {"seed": 1, "block-size": 16, "max-num-seqs": 2}
    words = to_argv(LaunchConfig.of(flags), "0.21.0")
    assert words == to_argv(dict(reversed(flags.items())), "0.21.0")
    assert words == ["--block-size", "16", "--max-num-seqs", "2", "--seed", "1"]


def parser_of(table: FlagTable) -> argparse.ArgumentParser:
    """What vLLM's own parser would take, as far as the table says."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    parser.add_argument("model_tag", nargs="?")
    types = {FlagKind.INT: int, FlagKind.FLOAT: float, FlagKind.STR: str, FlagKind.JSON: json.loads}
    for name, flag in table.flags.items():
        if flag.kind is FlagKind.BOOL:
            action = argparse.BooleanOptionalAction if flag.negatable else "store_true"
            parser.add_argument(f"--{name}", action=action, default=None)
            continue
        more = {"nargs": "+"} if flag.listed else {"action": "append"} if flag.repeated else {}
        if flag.bare:
            more = {"nargs": "?", "const": True}
        parser.add_argument(f"--{name}", type=types[flag.kind], **more)
    return parser


NEW = flag_table("0.21.0")
PARSERS = {version: parser_of(flag_table(version)) for version in ("0.17.1", "0.21.0", "0.33.0")}


def values_of(flag: Flag) -> st.SearchStrategy:
    if flag.kind is FlagKind.BOOL:
        return st.booleans() if flag.negatable else st.just(True)
    if flag.choices:
        one = st.sampled_from(flag.choices)
    elif flag.kind is FlagKind.INT:
        one = st.integers(max(int(flag.low or 0), 0), 1 << 40)
    elif flag.kind is FlagKind.FLOAT:
        one = st.floats(0, 1e6, allow_nan=False)
    elif flag.kind is FlagKind.JSON:
        one = st.dictionaries(st.text(max_size=4), st.integers() | st.booleans() | st.text(max_size=4))
        return one.map(lambda value: json.dumps(value, sort_keys=True))
    else:
        one = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
    return st.lists(one, min_size=1, max_size=3).map(tuple) if flag.listed or flag.repeated else one


@st.composite
def configs(draw: st.DrawFn, table: FlagTable) -> dict:
    names = draw(st.lists(st.sampled_from(sorted(table.flags)), max_size=8, unique=True))
    return {name: draw(values_of(table.flags[name])) for name in names}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(PARSERS)), st.data())
def test_argparse_reads_back_what_was_written(version: str, data: st.DataObject) -> None:
    table = flag_table(version)
    config = {
        name: value
        for name, value in data.draw(configs(table)).items()
        # A listed word that begins with a dash cannot be written for argparse at all.
        if not (isinstance(value, tuple) and any(str(v).startswith("-") for v in value))
    }
    config.pop("swap-space", None)
    parsed = vars(PARSERS[version].parse_args(["model", *to_argv(LaunchConfig.of(config), version)]))
    assert parsed["model_tag"] == "model"
    for name, value in config.items():
        got = parsed[name.replace("-", "_")]
        flag = table.flags[name]
        if flag.kind is FlagKind.JSON:
            assert got == json.loads(value)
        elif isinstance(value, tuple):
            assert tuple(got) == value
        elif isinstance(value, float):
            assert math.isclose(float(got), value)
        else:
            assert str(got) == str(value)
    unset = {key for key, value in parsed.items() if value is not None} - {"model_tag"}
    assert unset == {name.replace("-", "_") for name in config}
