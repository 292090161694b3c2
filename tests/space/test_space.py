"""Search spaces: from YAML to distributions, from points to launches, and back from values in force."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.hardware import catalogue, find_gpu
from tuner.models import find_model
from tuner.space import LaunchConfig, SearchSpace, flag_table, load_space, to_argv
from tuner.space.lengths import length_choices
from tuner.space.shipped import shipped_spaces, space_for
from tuner.space.yaml_file import parse_yaml
from tuner.traces.trace import Trace

FIVE = {"max-num-seqs", "block-size", "max-model-len", "gpu-memory-utilization", "swap-space"}
MODELS = ("kimi-k2.6-awq", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-0.6B")


@pytest.mark.parametrize("model", MODELS)
def test_every_shipped_space_loads_for_every_gpu(model: str, trace: Trace) -> None:
    shape = find_model(model)
    for name in catalogue():
        gpu = find_gpu(name)
        space = load_space(None, gpu=gpu, shape=shape, trace=trace, version="0.21.0", fixed={})
        assert len(space.parameters) >= 5
        flag_table("0.21.0").check(space.config(space.params_of({})))


@pytest.mark.parametrize("version", ["0.16.0", "0.17.1", "0.18.0", "0.21.0", "0.27.1", "0.33.0"])
def test_shipped_spaces_hold_only_flags_of_every_version(version: str, load) -> None:
    for path in shipped_spaces().values():
        space = load(path, version=version)
        table = flag_table(version)
        rng = np.random.default_rng(1)
        for _ in range(20):
            config = space.config({p.name: p.sample(rng) for p in space.parameters})
            table.check(config)
            to_argv(config, version)


def test_the_default_has_the_main_jobs_flags(load) -> None:
    space = load(Path("default"))
    assert set(space.distributions()) == FIVE | {"max-num-batched-tokens", "enable-prefix-caching"}
    assert space.baseline() == LaunchConfig()


@pytest.mark.parametrize(
    ("gpu", "file"),
    [
        ("A100-80G", "a100-80g"),
        ("A100-80G-PCIe", "a100-80g"),
        ("H100-PCIe-80G", "h100-80g"),
        ("H200-141G", "h200-141g"),
        ("L4-24G", "l4-24g"),
        ("cpu", "cpu"),
        ("T4-16G", "default"),
    ],
)
def test_the_space_is_chosen_by_gpu(gpu: str, file: str) -> None:
    assert space_for(gpu).stem == file


def test_on_a_cpu_nothing_is_searched_that_only_a_gpu_has(load) -> None:
    space = load(None, on=find_gpu("cpu"), version="0.32.0")
    assert not {"gpu-memory-utilization", "swap-space"} & set(space.distributions())
    assert dict(space.baseline()) == {"enforce-eager": True}


def test_several_cards_share_the_model_unless_said_otherwise(load) -> None:
    two = find_gpu("2xA100-80G")
    assert load(None, on=two).baseline()["tensor-parallel-size"] == 2
    assert dict(load(None, on=two, fixed={"data-parallel-size": 2}).baseline()) == {"data-parallel-size": 2}
    space = load("parameters: {tensor-parallel-size: [1, 2]}", on=two)
    assert not space.baseline()


def test_a_point_becomes_a_launch(load) -> None:
    space = load(
        "parameters: {max-num-seqs: {low: 1, high: 9}, swap-space: [0, 4], block-size: [16, 32]}\n"
        "fixed: {enforce-eager: true, cudagraph-capture-sizes: [1, 2, 4]}\n"
    )
    config = space.config({"max-num-seqs": 3, "swap-space": 0, "block-size": 32})
    assert dict(config) == {
        "block-size": 32,
        "cudagraph-capture-sizes": (1, 2, 4),
        "enforce-eager": True,
        "max-num-seqs": 3,
    }
    assert space.config({"swap-space": 4})["swap-space"] == 4
    assert space.size() == 9 * 2 * 2


def test_lists_and_mappings_can_be_choices_and_fixed(load) -> None:
    space = load(
        "parameters:\n"
        "  cudagraph-capture-sizes: {choices: [[1, 2], [1, 2, 4]]}\n"
        "  speculative-config: [null, {method: ngram, num_speculative_tokens: 3}]\n"
        "fixed: {compilation-config: {mode: 3}}\n"
    )
    study = optuna.create_study()
    trial = study.ask(space.distributions())
    config = space.config(trial.params)
    assert config["cudagraph-capture-sizes"] in ((1, 2), (1, 2, 4))
    assert config["compilation-config"] == '{"mode":3}'
    with_draft = space.params_of({}) | {"speculative-config": '{"method":"ngram","num_speculative_tokens":3}'}
    assert "speculative-config" in space.config(with_draft)
    assert "speculative-config" not in space.config(space.params_of({"speculative-config": None}))


def test_when_leaves_flags_out_but_never_changes_the_distributions(load) -> None:
    space = load(
        "parameters:\n"
        "  enable-prefix-caching: [true, false]\n"
        "  prefix-caching-hash-algo: {choices: [sha256, xxhash], when: {enable-prefix-caching: true}}\n"
        "  max-num-seqs: {low: 1, high: 8, when: {prefix-caching-hash-algo: [xxhash]}}\n"
    )
    assert len(space.distributions()) == 3
    on = {"enable-prefix-caching": True, "prefix-caching-hash-algo": "xxhash", "max-num-seqs": 2}
    assert dict(space.config(on)) == on
    assert dict(space.config(on | {"enable-prefix-caching": False})) == {"enable-prefix-caching": False}
    assert "max-num-seqs" not in space.config(on | {"prefix-caching-hash-algo": "sha256"})


def test_a_parameter_that_can_never_be_active_is_left_out(load) -> None:
    text = (
        "parameters:\n"
        "  enable-prefix-caching: [true, false]\n"
        "  prefix-caching-hash-algo: {choices: [sha256, xxhash], when: {enable-prefix-caching: true}}\n"
    )
    assert not load(text, fixed={"enable-prefix-caching": False}).distributions()
    assert set(load(text, fixed={"enable_prefix_caching": True}).distributions()) == {
        "prefix-caching-hash-algo"
    }


def test_set_takes_a_flag_out_of_the_search(load) -> None:
    space = load(None, fixed={"block_size": 32, "swap-space": 0, "max-model-len": None})
    assert not {"block-size", "swap-space", "max-model-len"} & set(space.distributions())
    assert dict(space.baseline()) == {"block-size": 32}
    assert any("'block_size' is read as 'block-size'" in note for note in space.notes)


def test_extends_merges_by_flag(tmp_path: Path, load) -> None:
    (tmp_path / "base.yaml").write_text(
        "parameters: {block-size: [16, 32], max-num-seqs: [1, 2]}\nfixed: {seed: 1, enforce-eager: true}\n"
    )
    space = load(
        "extends: base.yaml\nparameters: {block-size: null, seed: [0, 1]}\nfixed: {max-num-seqs: 4}\n"
    )
    assert set(space.distributions()) == {"seed"}
    assert dict(space.baseline()) == {"enforce-eager": True, "max-num-seqs": 4}


def test_extends_takes_shipped_names_before_files_beside(tmp_path: Path, load) -> None:
    (tmp_path / "default.yaml").write_text("extends: default\nparameters: {seed: [1, 2]}\n")
    assert "seed" in load(tmp_path / "default.yaml").distributions()
    assert "seed" not in load("extends: default").distributions()
    (tmp_path / "mine.yaml").write_text("parameters: {seed: [1, 2]}\n")
    assert set(load("extends: mine").distributions()) == {"seed"}
    assert load(None).source == "search_spaces/a100-80g.yaml"


def test_lengths_cover_the_trace(trace: Trace) -> None:
    assert length_choices(trace, 131072) == ((3072, 0.995), (20480, 1.0), (131072, 1.0))
    assert length_choices(trace, 131072, (0.95, 1.0))[0] == (512, 0.98)
    assert length_choices(trace, 2048) == ((2048, 0.98),)
    assert length_choices(trace.take(np.zeros(0, dtype=np.int64)), 4096) == ((4096, 1.0),)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(2, 200_000), min_size=1, max_size=60),
    st.integers(256, 262_144),
    st.floats(0.01, 1.0),
)
def test_each_length_covers_what_it_says(make_trace, totals: list[int], model: int, level: float) -> None:
    trace = make_trace(totals)
    found = length_choices(trace, model, (level, 1.0))
    assert all(trace.coverage(length) == share and length <= model for length, share in found)
    assert found[-1][0] == model
    reachable = trace.coverage(model)
    assert found[0][1] >= min(level, reachable)


def test_coverage_adds_a_level(load) -> None:
    text = "parameters: {max-model-len: from-trace}"
    assert load(text).parameters[0].choices == (3072, 20480, 131072)
    assert load(text, coverage=0.95).parameters[0].choices == (512, 3072, 20480, 131072)
    chosen = "parameters: {max-model-len: {from-trace: [0.99]}}"
    assert load(chosen).parameters[0].choices == (3072, 131072)
    assert "covers 99.5%" in load(text).describe()["max-model-len"]
    described = load(text).widened({"max-model-len": 8000}).describe()["max-model-len"]
    assert described.startswith("3072 (covers 99.5%), 8000 (vLLM's own), 20480 (covers 100%)")
    for wrong in (0.0, 1.5, math.nan):
        with pytest.raises(BadRequest, match="coverage"):
            load(text, coverage=wrong)


EFFECTIVE = {
    "max-num-seqs": 1024,
    "max-num-batched-tokens": 2048,
    "gpu-memory-utilization": 0.92,
    "max-model-len": 131072,
    "block-size": 16,
    "enable-prefix-caching": True,
    "swap-space": None,
}


@pytest.mark.parametrize("name", sorted(shipped_spaces()))
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"max-num-seqs": 5, "max-num-batched-tokens": 131072, "block-size": 8, "max-model-len": 33333},
        {"gpu-memory-utilization": 0.5, "swap-space": 3.5},
        {"gpu-memory-utilization": 1.0, "max-num-seqs": 1, "max-num-batched-tokens": 16},
        {"max-model-len": "auto"},
        {"max-model-len": -1, "swap-space": 0},
    ],
)
def test_a_widened_space_holds_the_values_in_force(name: str, change: dict, load) -> None:
    effective = EFFECTIVE | change
    space = load(shipped_spaces()[name]).widened(effective)
    params = space.params_of(effective)
    for flag, distribution in space.distributions().items():
        assert distribution._contains(distribution.to_internal_repr(params[flag]))
        asked = effective[flag]
        if flag == "max-model-len" and asked in ("auto", -1):
            asked = 131072
        assert params[flag] == (0 if asked is None else asked)
    assert space.widened(effective) == space
    optuna.create_study().enqueue_trial(params)


def test_widening_keeps_steps_whole(load) -> None:
    space = load("parameters: {max-num-seqs: {low: 8, high: 64, step: 8}}").widened({"max-num-seqs": 3})
    (parameter,) = space.parameters
    assert (parameter.low, parameter.high) == (0, 64)
    assert space.params_of({"max-num-seqs": 3}) == {"max-num-seqs": 0}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "max-num-seqs": st.integers(1, 5000),
            "max-num-batched-tokens": st.integers(1, 200_000),
            "gpu-memory-utilization": st.floats(0.01, 1.0),
            "max-model-len": st.integers(1, 262_144) | st.just("auto"),
            "block-size": st.integers(1, 512),
            "enable-prefix-caching": st.booleans(),
            "swap-space": st.none() | st.floats(0, 64),
        },
    )
)
def test_params_of_always_lies_in_the_widened_space(load, effective: dict) -> None:
    space = load(Path("default")).widened(effective)
    params = space.params_of(effective)
    for flag, distribution in space.distributions().items():
        assert distribution._contains(distribution.to_internal_repr(params[flag])), flag
    assert set(space.config(params)) <= set(params)


def test_the_space_survives_optuna(load) -> None:
    space = load(None).widened(EFFECTIVE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial(space.params_of(EFFECTIVE))
    for number in range(20):
        trial = study.ask(space.distributions())
        config = space.config(trial.params)
        if number == 0:
            assert trial.params == space.params_of(EFFECTIVE)
        for parameter in space.parameters:
            stored = trial.params[parameter.name]
            assert parameter.point(parameter.value(stored)) == pytest.approx(stored)
        study.tell(trial, float(len(config)))
    assert len(optuna.search_space.intersection_search_space(study.trials)) == len(space.parameters)


def test_the_digest_is_of_what_is_searched(load, tmp_path: Path) -> None:
    one = load("parameters: {max-num-seqs: [1, 2]}")
    assert one.digest() == load("# the same\nparameters:\n  max-num-seqs: [1, 2]\n").digest()
    others = ["parameters: {max-num-seqs: [1, 3]}", "parameters: {max-num-seqs: {low: 1, high: 2}}"]
    digests = {one.digest(), one.widened({"max-num-seqs": 9}).digest(), *(load(o).digest() for o in others)}
    assert len(digests) == 4
    assert load("fixed: {enforce-eager: true}").digest() != load("fixed: {seed: 1}").digest()


def test_describe_is_one_line_each(load) -> None:
    lines = load(
        "parameters:\n"
        "  gpu-memory-utilization: {low: 0.8, high: 0.9, step: 0.01}\n"
        "  max-num-seqs: {low: 8, high: 64, log: true, when: {enable-prefix-caching: [true, false]}}\n"
        "  enable-prefix-caching: [true, false]\n"
    ).describe()
    assert lines == {
        "enable-prefix-caching": "true, false",
        "gpu-memory-utilization": "0.8 to 0.9 by 0.01",
        "max-num-seqs": "8 to 64, logarithmic, when enable-prefix-caching is true or false",
    }


def test_whole_floats_are_whole_numbers_where_the_flag_is_one(load) -> None:
    (parameter,) = load("parameters: {max-num-seqs: {low: 2.0, high: 8.0, step: 2.0}}").parameters
    assert type(parameter.value(4)) is int
    assert parameter.distribution() == optuna.distributions.IntDistribution(2, 8, step=2)


def test_an_open_float_range_has_no_size(load) -> None:
    assert load("parameters: {gpu-memory-utilization: {low: 0.5, high: 0.9}}").size() == math.inf


BAD = {
    "parameters: {max-num-seq: [1]}": ":1: parameters: flag 'max-num-seq'.*did you mean 'max-num-seqs'",
    "\n\nfixed: {max-num-sec: 3}": ":3: fixed:.*max-num-seqs",
    "params: {max-num-seqs: [1]}": "unknown key 'params'.*did you mean 'parameters'",
    "max-num-seqs: [1]": "unknown key 'max-num-seqs'.*under `parameters:`",
    "parameters: [1]": "parameters: has to be a mapping",
    "[1, 2]": "has to be a mapping",
    "parameters: {max-num-seqs: 8}": "one value, not a range.*fixed",
    "parameters: {max-num-seqs: {low: 8}}": "needs low and high",
    "parameters: {max-num-seqs: {low: 8, high: 4}}": "low 8 is above high 4",
    "parameters: {max-num-seqs: {low: 1, high: 8, log: true, step: 2}}": "exclude each other",
    "parameters: {max-num-seqs: {low: 1, high: 8, step: 2}}": "write high: 7",
    "parameters: {max-num-seqs: {low: 0, high: 8}}": "must be at least 1",
    "parameters: {max-num-seqs: {low: 1.5, high: 8}}": "whole number",
    "parameters: {max-num-seqs: {low: 1, high: 8, step: 0}}": "above 0",
    "parameters: {max-num-seqs: {low: 1, high: 8, max: 9}}": "unknown key 'max'",
    "parameters: {max-num-seqs: {low: 1, high: 8, choices: [1]}}": "choices cannot stand with high, low",
    "parameters: {max-num-seqs: {choices: []}}": "takes a list",
    "parameters: {max-num-seqs: [1, 1]}": "stands twice",
    "parameters: {max-num-seqs: [many]}": "takes a whole number",
    "parameters: {max-num-seqs: from-trace}": "max-model-len only",
    "parameters: {max-model-len: {from-trace: [2]}}": "shares of the trace",
    "parameters: {gpu-memory-utilization: {low: 0.5, high: 1.2}}": "at most 1",
    "parameters: {gpu-memory-utilization: {low: 0, high: 0.9}}": "above 0",
    "parameters: {gpu-memory-utilization: {low: 5e-1, high: 0.9}}": "not a number",
    "parameters: {gpu-memory-utilization: {low: .nan, high: 0.9}}": "not a number",
    "parameters: {kv-cache-dtype: [fp9]}": "takes one of auto",
    "parameters: {kv-cache-dtype: {low: 1, high: 2}}": "is not a number",
    "parameters: {enable-prefix-caching: ['yes']}": "true or false",
    "parameters: {max-num-seqs: [1], max-num-seqs: [2]}": "stands twice, first in line 1",
    "parameters: {max-num-seqs: [1], max_num_seqs: [2]}": "stands twice",
    "parameters: {max-num-seqs: [1]}\nfixed: {max-num-seqs: 1}": ":2: 'max-num-seqs' is both",
    "parameters: {max-num-seqs: {choices: [1], when: {seed: 1}}}": "neither a parameter nor fixed",
    "parameters: {seed: {choices: [1], when: {seed: 1}}}": "circle",
    "parameters: {max-num-seqs: {choices: [1], when: {max-num-sec: 1}}}": "when: .*max-num-seqs'",
    "parameters: {seed: [1], max-num-seqs: {choices: [1], when: {seed: one}}}": "when: flag 'seed'.*whole",
    "fixed: {port: 8000}": "'port' cannot be set here",
    "parameters: {served_model_name: [a, b]}": "'served-model-name' cannot be set here",
    "fixed: {max-num-seqs: [1, 2]}": "not a list",
    "parameters: {max-num-seqs: {choices: [1], when: 3}}": "when: takes flags",
    "extends: nowhere": ":1: extends: there is no space 'nowhere'",
    "extends: defalt": "did you mean 'default'",
    "extends: space.yaml": "circle",
    "extends: [default]": "one name or path",
    "parameters: {max-num-seqs: [1": "not YAML",
    "a: 1\n---\nb: 2": "not YAML",
    "parameters: {max-num-seqs: [2001-01-01]}": "not a plain value",
    "parameters: {? [a] : 1}": "a key has to be a word",
    "parameters: {max-num-seqs: !!python/object:os.system [1]}": "space.yaml:1",
    "parameters: {max-num-active-seqs: [1]}": "it came with 0.31.0",
}


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_space_says_where_and_what(text: str, load) -> None:
    with pytest.raises(BadRequest, match=BAD[text]) as caught:
        load(text)
    assert "space.yaml" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_wrong_set_says_what(load) -> None:
    with pytest.raises(BadRequest, match="--set: flag 'max-num-seq'.*max-num-seqs"):
        load(None, fixed={"max-num-seq": 3})
    with pytest.raises(BadRequest, match="takes a whole number"):
        load(None, fixed={"max-num-seqs": "many"})
    with pytest.raises(BadRequest, match="cannot be set here"):
        load(None, fixed={"port": 8000})
    with pytest.raises(BadRequest, match="given twice"):
        load(None, fixed={"max-num-seqs": 3, "max_num_seqs": 4})


def test_a_missing_or_huge_or_binary_file(tmp_path: Path, load) -> None:
    with pytest.raises(BadRequest, match="did you mean 'h100-80g'"):
        load(tmp_path / "h100-80.yaml")
    with pytest.raises(BadRequest, match="not a file"):
        load(tmp_path)
    big = tmp_path / "big.yaml"
    big.write_text("#" * 1_000_001)
    with pytest.raises(BadRequest, match="larger than 1 MB"):
        load(big)
    big.write_bytes(b"\xff\x00\x01")
    with pytest.raises(BadRequest, match=r"big\.yaml"):
        load(big)


def test_files_that_explode_are_refused() -> None:
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    for text in (laughs, "&a [*a]", "[" * 500, "{a: " * 500, "- 1\n" * 50_000, "a: &a {b: *a}"):
        with pytest.raises(BadRequest):
            parse_yaml(text, "bomb.yaml")


BASE = """extends: default
parameters:
  max-num-seqs: {low: 8, high: 1024, log: true}
  block-size: [16, 32, 64, 128]
  max-model-len: {from-trace: [0.99, 1.0]}
  enable-chunked-prefill: {choices: [true, false], when: {enable-prefix-caching: true}}
fixed: {enforce-eager: true, seed: 1}
"""
PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\n",
        "  ",
        "- ",
        "&a ",
        "*a",
        "!!int ",
        "'",
        '"',
        "null",
        "true",
        "-1",
        "1e9",
    ]
    + [
        "99999999999999999999",
        ".inf",
        "low",
        "high",
        "step: 3",
        "when",
        "extends: default",
        "\t",
        "\x00",
        "é",
        "<<: ",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, len(BASE)), st.integers(0, 12), PIECES | st.text(max_size=4)),
        min_size=1,
        max_size=4,
    )
)
def test_mutated_files_load_or_are_refused(load, edits: list[tuple[int, int, str]]) -> None:
    text = BASE
    for start, length, piece in edits:
        text = text[:start] + piece + text[start + length :]
    try:
        text.encode()
        space = load(text)
    except (BadRequest, UnicodeEncodeError):
        return
    assert isinstance(space, SearchSpace)
    space.widened(EFFECTIVE)
    params = space.params_of(EFFECTIVE)
    assert set(space.distributions()) == set(params)
    to_argv(space.config(params), "0.21.0")
    space.describe(), space.digest(), space.size()


def test_a_flag_that_the_defaults_leave_out_can_be_left_out(load) -> None:
    space = load("parameters: {quantization: [awq]}").widened({})
    point = space.params_of({})
    assert space.config(point).get("quantization") is None
    assert space.config({"quantization": "awq"})["quantization"] == "awq"
    assert set(space.distributions()["quantization"].choices) == {"awq", None}
    assert "--quantization" not in to_argv(space.config(point), "0.21.0")
