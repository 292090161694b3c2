"""Schema 2: every field survives, earlier schemas are brought up, and a hostile file is one clear line."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported import make_profile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.profiles import (
    SCHEMA_VERSION,
    CardsRow,
    Drift,
    FinalRow,
    FlagGain,
    GpuCost,
    Measured,
    PredictionRow,
    Profile,
    SeparateQueue,
    Shift,
    Tie,
    UsersRow,
    load_profile,
    profile_from_json,
    profile_to_json,
    save_profile,
)
from tuner.space.config import LaunchConfig

AMOUNT = st.floats(0.0, 1e9)
SECONDS = st.none() | st.floats(0.0, allow_nan=False)
INTERVAL = st.tuples(SECONDS, SECONDS)
COUNT = st.integers(0, 2**40)
FLAG_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
PLAIN = st.dictionaries(
    st.text(max_size=6),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**40), 2**40)
        | st.floats(allow_nan=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
        max_leaves=3,
    ),
    max_size=2,
)
VALUES = st.dictionaries(st.text(max_size=6), FLAG_VALUE, max_size=2)
NAME = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,6}", fullmatch=True)
FLAGS = st.dictionaries(NAME, FLAG_VALUE, max_size=2).map(LaunchConfig.of)
TEXT = st.text(max_size=8)


def rows(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=2).map(tuple)


MEASURED = st.builds(
    Measured,
    flags=FLAGS,
    command=rows(TEXT),
    throughput_rps=AMOUNT,
    output_tps=AMOUNT,
    p99_s=SECONDS,
    p99_interval_s=INTERVAL,
    mean_s=SECONDS,
    users=COUNT,
    kv_tokens=COUNT,
    startup_s=AMOUNT,
    effective=VALUES,
    note=TEXT,
)
PROFILES = st.builds(
    Profile,
    study=TEXT,
    gpu=TEXT,
    model=TEXT.filter(lambda name: name.strip() and name[0] != "-"),
    vllm_version=st.sampled_from(["0.16.0", "0.21.0", "0.32.0+cpu"]),
    slo=st.dictionaries(st.sampled_from(["e2e_p99_s", "ttft_p99_s"]), AMOUNT),
    trace=PLAIN,
    window=st.tuples(AMOUNT, AMOUNT),
    start_rps=AMOUNT,
    requests=COUNT,
    seed=st.integers(-(2**40), 2**40),
    recommendation=st.sampled_from(["tuned", "default"]),
    winner=MEASURED,
    baseline=MEASURED,
    gain=st.none() | AMOUNT,
    provenance=st.sampled_from(["measured", "simulated"]),
    driver=st.none() | TEXT,
    users_table=rows(st.builds(UsersRow, COUNT, SECONDS, SECONDS, SECONDS, SECONDS)),
    created=TEXT,
    gain_interval=st.none() | st.tuples(AMOUNT, AMOUNT),
    ties=rows(st.builds(Tie, FLAGS, AMOUNT, rows(TEXT))),
    flag_gains=rows(st.builds(FlagGain, TEXT, FLAG_VALUE, st.floats(-1, 1), TEXT)),
    by_cards=rows(st.builds(CardsRow, COUNT, COUNT, AMOUNT, AMOUNT, FLAGS)),
    sensitivity=rows(st.builds(Shift, TEXT, AMOUNT, AMOUNT, TEXT)),
    brittle=TEXT,
    separate=st.none() | st.builds(SeparateQueue, COUNT, AMOUNT, AMOUNT, AMOUNT, AMOUNT),
    finals=rows(st.builds(FinalRow, TEXT, COUNT, AMOUNT, SECONDS, INTERVAL, TEXT, st.booleans())),
    drift=st.none() | st.builds(Drift, rows(AMOUNT), st.floats(0, 9), AMOUNT),
    predictions=rows(st.builds(PredictionRow, TEXT, AMOUNT, AMOUNT, COUNT)),
    machine=PLAIN,
    traffic=PLAIN,
    cost=st.none() | st.builds(GpuCost, AMOUNT, TEXT, AMOUNT, TEXT),
)


def test_the_strategies_fill_every_field() -> None:
    assert {field.name for field in fields(Profile)} - {"schema"} == set(
        PROFILES.wrapped_strategy.kwargs  # type: ignore[attr-defined]
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(made=PROFILES)
def test_every_field_is_read_back(made: Profile) -> None:
    assert profile_from_json(profile_to_json(made)) == made
    assert profile_from_json(json.loads(json.dumps(profile_to_json(made)))) == made


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(made=PROFILES)
def test_a_file_is_read_back(tmp_path: Path, made: Profile) -> None:
    save_profile(made, tmp_path / "profile.yaml")
    assert load_profile(tmp_path / "profile.yaml") == made


ADDED = (
    *("gain_interval", "ties", "flag_gains", "sensitivity", "brittle", "separate", "finals", "drift"),
    *("predictions", "machine", "traffic", "cost", "by_cards"),
)


def schema_1(profile: Profile) -> dict[str, Any]:
    values = {key: value for key, value in profile_to_json(profile).items() if key not in ADDED}
    return {**values, "schema": 1}


def test_a_profile_of_schema_1_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(schema_1(make_profile())))
    assert load_profile(path) == make_profile()
    assert load_profile(path).schema == SCHEMA_VERSION
    save_profile(load_profile(path), path)
    assert load_profile(path) == make_profile()


def test_what_is_wrong_in_an_earlier_schema_is_named(tmp_path: Path) -> None:
    values = schema_1(make_profile())
    del values["gain"]
    with pytest.raises(BadRequest, match="gain is missing"):
        profile_from_json(values)
    with pytest.raises(BadRequest, match="surprise: not a field"):
        profile_from_json({**schema_1(make_profile()), "surprise": 1})


def test_cards_and_capacity_a_card() -> None:
    assert make_profile({}).winner.cards == 1
    four = make_profile({"tensor-parallel-size": 2, "pipeline-parallel-size": 2})
    assert four.winner.cards == 4 and four.per_card_rps == pytest.approx(3.25 / 4)
    fixed = replace(four.winner, flags=LaunchConfig(), effective={"tensor-parallel-size": 8})
    assert fixed.cards == 8


def test_drift_over_its_limit() -> None:
    assert Drift((3.0, 3.4), 0.13, 0.05).excessive and not Drift((3.0, 3.1), 0.03, 0.05).excessive


def test_a_wrong_value_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    save_profile(make_profile(), path)
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if "throughput_rps" in line)
    lines[number] = lines[number].replace("3.25", "fast")
    path.write_text("\n".join(lines))
    with pytest.raises(BadRequest) as refused:
        load_profile(path)
    said = f"{path}:{number + 1}: winner: throughput_rps: a number is needed, not 'fast'"
    assert refused.value.what == said and refused.value.mend == "mend the file"


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB, "aliases or nesting|too many entries"),
        ("schema: 2\n" + "x: 1\n" * 2, "stands twice"),
        ("schema: 2\ntrace: &t {a: *t}\n", "aliases or nesting|not YAML"),
        ("[" * 100_000, "nested too deeply"),
        ("schema: " + "9" * 5000, "whole number|newer|not a plain value"),
        ("schema: !!python/object/apply:os.system [id]", "not a plain value"),
        ("x: '" + "y" * 10_000_000 + "'", "larger than a profile can be"),
        ("schema: 2\nseed: 2026-11-30\n", "not a plain value"),
        ("schema: null", "a whole number is needed, not None"),
        ("schema: true", "a whole number is needed, not True"),
    ],
)
def test_a_hostile_file_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(content)
    with pytest.raises(BadRequest, match=said) as refused:
        load_profile(path)
    text = str(refused.value)
    assert "\n" not in text and len(text) < 400 and str(path) in text


JUNK = st.none() | st.booleans() | st.integers() | st.just(math.nan) | TEXT | st.lists(TEXT) | PLAIN


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_change_of_one_value_is_worse_than_a_refusal(data: st.DataObject) -> None:
    values: Any = profile_to_json(make_profile())
    inner = values
    while True:
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        deeper = isinstance(inner[key], dict | list) and inner[key] and data.draw(st.booleans())
        if not deeper:
            break
        inner = inner[key]
    inner[key] = data.draw(JUNK)
    try:
        profile = profile_from_json(values)
    except BadRequest as refused:
        assert len(refused.what) < 400
    else:
        assert profile_from_json(profile_to_json(profile)) is not None
