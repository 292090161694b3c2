"""From a study to its exports, its cost and the check of its profile; what was launched is exported."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported import READERS

from tuner.cli import run
from tuner.engines.simulated import SimulatedEngine
from tuner.profiles import formats, load_profile, save_profile
from tuner.space.config import LaunchConfig
from tuner.traces import compress_time, shipped_trace, window, write_trace

TUNE = ("--gpu", "A100-80G", "--slo-p99", "30s", "--trials", "2", "--requests", "300", "--study", "it")


@dataclass
class Tuned:
    """A study's folder, its JSON, and every command that was launched, in order."""

    folder: Path
    json: dict[str, Any]
    launched: list[tuple[LaunchConfig, list[str]]]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("deploy")
    launched: list[tuple[LaunchConfig, list[str]]] = []
    launch = SimulatedEngine.launch

    def recorded(self: SimulatedEngine, config: LaunchConfig, *args: Any) -> Any:
        server = launch(self, config, *args)
        launched.append((config, list(server.facts.command)))
        return server

    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.chdir(folder)
        patch.setattr(SimulatedEngine, "launch", recorded)
        assert run([*TUNE, "--gpu-cost", "14000CNY/month", "--json"]) == 0
    return Tuned(folder, json.loads(out.getvalue()), launched)


@pytest.fixture
def at(tuned: Tuned, monkeypatch: pytest.MonkeyPatch, kimi_tune: Any) -> Any:
    """Commands run in the study's folder."""
    monkeypatch.chdir(tuned.folder)
    return kimi_tune


@pytest.mark.parametrize("format", formats())
def test_what_the_finals_launched_is_exported_word_for_word(tuned: Tuned, at: Any, format: str) -> None:
    """The simulator's command has no address; a real launch adds host, port and served-model-name, and only
    those (tests/profiles/test_launched_words.py).
    """
    profile = load_profile(tuned.folder / "studies" / "it" / "profile.yaml")
    ran = at("export", "it", "--format", format)
    assert ran.code == 0
    finals = [words for config, words in tuned.launched if config == profile.winner.flags]
    assert finals and all(words == finals[-1] for words in finals)
    words = READERS[format](ran.out)
    if format == "helm":
        words, finals[-1] = (
            sorted({*words, "--enable-prefix-caching"}),
            sorted({*finals[-1], "--enable-prefix-caching"}),
        )
    assert words == finals[-1]


def test_the_cost_is_in_json_profile_and_exports(tuned: Tuned, at: Any) -> None:
    cost = tuned.json["cost"]
    assert cost["price"] == "14000CNY/month" and cost["tuned"]["per_month"] == pytest.approx(14000)
    ratio = cost["default"]["per_million_output_tokens"] / cost["tuned"]["per_million_output_tokens"]
    assert ratio == pytest.approx(tuned.json["gain"])
    assert "CNY a million output tokens" in at("export", "it", "--format", "shell").out
    assert "USD a million output tokens" in at("export", "it", "--gpu-cost", "2.5USD/h").out


def test_a_study_that_has_ended_is_priced_again(tuned: Tuned, at: Any) -> None:
    ran = at(*TUNE, "--gpu-cost", "2USD/h")
    assert ran.code == 0 and "USD a million output tokens" in ran.out
    kept = load_profile(tuned.folder / "studies" / "it" / "profile.yaml").cost
    assert kept is not None and kept.text == "2USD/h"


@pytest.mark.parametrize("command", [TUNE, ("export", "it")])
def test_a_bad_price_is_refused_in_one_line(at: Any, command: tuple[str, ...]) -> None:
    ran = at(*command, "--gpu-cost", "cheap")
    assert ran.code == 2 and len(ran.err.strip().splitlines()) == 1 and "not a price" in ran.err


def test_the_machine_and_the_traffic_are_in_the_profile_and_no_host(tuned: Tuned) -> None:
    import socket

    text = (tuned.folder / "studies" / "it" / "profile.yaml").read_text()
    values = yaml.safe_load(text)
    assert values["machine"] == {"gpu": "A100-80G", "gpu_count": 1, "vllm": values["vllm_version"]}
    assert values["traffic"]["requests"] == 2000 and values["traffic"]["prefix_reuse"] > 0.5
    assert socket.gethostname() not in text and str(tuned.folder) not in text


def test_the_same_traffic_still_fits(at: Any, tmp_path: Path) -> None:
    write_trace(window(shipped_trace(), 0.2, 0.8), tmp_path / "new.jsonl")
    ran = at("check", "it", "--trace", tmp_path / "new.jsonl", "--vllm-version", "0.21.0")
    assert ran.code == 0 and "still fits" in ran.out and "\n!" not in ran.out


def test_other_traffic_ends_with_exit_3_and_the_reason(at: Any, tmp_path: Path) -> None:
    write_trace(compress_time(shipped_trace(), 2.0), tmp_path / "new.jsonl")
    for profile in ("it", Path("studies/it/profile.yaml")):
        ran = at("check", profile, "--trace", tmp_path / "new.jsonl", "--json")
        assert ran.code == 3 and ran.json["fits"] is False
        assert [reason for reason in ran.json["reasons"] if reason.startswith("rate: ")]
        assert {"name", "then", "now", "moved", "said"} == set(ran.json["findings"][0])


def test_another_vllm_ends_with_exit_3(at: Any) -> None:
    ran = at("check", "it", "--vllm-version", "0.22.0")
    assert ran.code == 3 and "Tune again: vLLM 0.22.0 is here, 0.21.0 was tuned" in ran.out


@pytest.mark.parametrize(
    "command",
    [
        ("check", "nowhere"),
        ("check", "it", "--trace", "nowhere.jsonl"),
        ("check", "it", "--vllm-version", "new"),
        ("check", "broken.yaml"),
        ("export", "broken.yaml"),
        ("check", "it", "--vllm-python", "/nowhere/python"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tuned: Tuned, at: Any, command: tuple[str, ...]) -> None:
    (tuned.folder / "broken.yaml").write_text("schema: 2\nwinner: 5\n")
    ran = at(*command)
    assert ran.code == 2 and ran.out == "" and len(ran.err.strip().splitlines()) == 1, ran.err


def test_a_profile_of_an_earlier_schema_says_what_it_lacks(tuned: Tuned, at: Any, tmp_path: Path) -> None:
    profile = load_profile(tuned.folder / "studies" / "it" / "profile.yaml")
    save_profile(replace(profile, traffic={}), tmp_path / "old.yaml")
    write_trace(shipped_trace(), tmp_path / "new.jsonl")
    ran = at("check", tmp_path / "old.yaml", "--trace", tmp_path / "new.jsonl")
    assert ran.code == 2 and "tune once more" in ran.err
