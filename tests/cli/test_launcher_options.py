"""--launcher and --allow-quality-flags: what they choose, and what is refused before a launch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.cli.setup import engine_at, find_place
from tuner.errors import BadRequest, EngineUnavailable
from tuner.models import find_model
from tuner.spec import EngineChoice

DOCKER = "docker run --rm --gpus all -p {port}:{port} vllm/vllm-openai:v0.22.1 {args}"
QUICK = ("--gpu", "A100-80G", "--engine", "sim", "--slo-p99", "30s", "--dry-run", "--json")


def test_a_container_tells_its_version_and_needs_no_vllm_here() -> None:
    place = find_place("cpu", EngineChoice.VLLM, launcher=DOCKER)
    assert place.installed is None and place.vllm_version == "0.22.1" and place.launcher == DOCKER
    engine = engine_at(place, find_model("kimi-k2.6-awq"), "org/model")
    try:
        assert engine.name == "vllm" and engine.vllm_version == "0.22.1"
    finally:
        engine.close()


def test_an_image_without_a_version_needs_one() -> None:
    image = DOCKER.replace("v0.22.1", "latest")
    with pytest.raises(EngineUnavailable, match="version"):
        find_place("cpu", EngineChoice.VLLM, launcher=image)
    assert find_place("cpu", EngineChoice.VLLM, "0.23.0", launcher=image).vllm_version == "0.23.0"


@pytest.mark.parametrize("launcher", ["plain", "warm", "vllm serve", DOCKER])
def test_the_simulator_takes_no_launcher(kimi_tune: Callable[..., Any], launcher: str) -> None:
    ran = kimi_tune(*QUICK, "--launcher", launcher)
    assert ran.code == 2 and "--launcher" in ran.json["error"]["what"]


def test_a_launcher_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadRequest, match="placeholder"):
        find_place("cpu", EngineChoice.VLLM, launcher="vllm serve {flags}")


def test_answers_are_left_alone_unless_somebody_asks(kimi_tune: Callable[..., Any], tmp_path: Path) -> None:
    plain = kimi_tune(*QUICK)
    assert plain.code == 0 and "kv-cache-dtype" not in plain.json["parameters"]
    assert not any("quality" in note for note in plain.json["notes"])
    allowed = kimi_tune(*QUICK, "--allow-quality-flags")
    assert allowed.json["parameters"]["kv-cache-dtype"] == "auto, fp8"
    assert any("kv-cache-dtype" in note for note in allowed.json["notes"])
    own = tmp_path / "own.yaml"
    own.write_text(
        yaml.safe_dump({"parameters": {"kv-cache-dtype": ["auto", "fp8"], "max-num-seqs": [64, 256]}})
    )
    named = kimi_tune(*QUICK, "--space", own)
    assert "kv-cache-dtype" in named.json["parameters"]
    assert any("kv-cache-dtype" in note for note in named.json["notes"])


def test_a_result_names_flags_that_can_change_the_answers(kimi_tune: Callable[..., Any]) -> None:
    job = ("--gpu", "A100-80G", "--engine", "sim", "--slo-p99", "30s", "--trials", "2", "--requests", "60")
    ran = kimi_tune(*job, "--set", "kv-cache-dtype=fp8", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["quality_flags"] == ["kv-cache-dtype"] and "kv-cache-dtype can change" in ran.err
    profile = yaml.safe_load(next(Path("studies").glob("*/profile.yaml")).read_text())
    assert "kv-cache-dtype" in profile["winner"]["note"]
    assert kimi_tune(*job, "--json").json["quality_flags"] == []
