"""Every export parsed by the tool that reads it, where that tool is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported import FLAGS, READERS, flags_meant, launchable, make_profile
from hypothesis import HealthCheck, Phase, given, settings

from tuner.profiles import Profile, export
from tuner.space import flag_table
from tuner.spec import FlagValue

HARD = {
    **FLAGS,
    "served-model-name": "it's $HOME `id` \\ %n 1e3 {{ x }} ${A:-b}",
    "chat-template": "line one\nline two\u2028é",
    "compilation-config": '{"mode":3,"pass_config":{"fuse":null}}',
    "tensor-parallel-size": 2,
}
PROFILES = {
    "plain": make_profile({}, provenance="measured"),
    "simulated": make_profile(),
    "hard": make_profile(HARD, model="/models/it's $x", provenance="measured"),
    "cpu": make_profile(gpu="cpu", version="0.32.0+cpu"),
    "offloaded": make_profile({"swap-space": 16, "tensor-parallel-size": 8}, gpu="8xH100-80G"),
}
profiles = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)


def tool(name: str) -> str:
    """The tool's path, beside this interpreter or on the PATH; the test is skipped where there is none."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@profiles
def test_shellcheck_finds_nothing_in_the_script(profile: Profile, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(export(profile, "shell"))
    checked = subprocess.run([tool("shellcheck"), str(script)], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


@profiles
def test_systemd_reads_the_unit(profile: Profile, tmp_path: Path) -> None:
    unit = tmp_path / "vllm.service"
    unit.write_text(export(profile, "systemd"))
    command = [tool("systemd-analyze"), "verify", "--man=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0 and "vllm.service" not in checked.stderr, checked.stderr


@profiles
def test_kubernetes_own_schema_takes_every_document(profile: Profile) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for document in yaml.safe_load_all(export(profile, "kubernetes")):
        for version in (kubernetes_validate.latest_version(), "1.30"):
            kubernetes_validate.validate(document, version, strict=True)


def test_kubernetes_own_schema_refuses_a_wrong_document() -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    document = next(yaml.safe_load_all(export(make_profile(), "kubernetes")))
    document["spec"]["template"]["spec"]["containers"][0]["args"] = [1]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@profiles
def test_the_compose_specification_takes_the_file(profile: Profile) -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="compose-spec is not installed")
    read = compose_spec.PyCompose.from_yaml(export(profile, "compose"))
    (service,) = read.to_dict()["services"].values()
    words = [word.replace("$$", "$") for word in [*service["entrypoint"], *service["command"]]]
    assert words == list(profile.winner.command)
    with pytest.raises(ValueError, match="nonsense"):
        text = export(profile, "compose").replace("shm_size:", "nonsense:")
        compose_spec.PyCompose.from_yaml(text)


def compose_command() -> list[str]:
    """`docker compose`, or the older `docker-compose`."""
    docker = shutil.which("docker")
    if docker and not subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        return [docker, "compose"]
    return [tool("docker-compose")]


@profiles
def test_docker_compose_reads_the_file(profile: Profile, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(export(profile, "compose"))
    command = [*compose_command(), "-f", str(file), "config"]
    shown = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_TOKEN": ""})
    assert shown.returncode == 0, shown.stderr
    (service,) = yaml.safe_load(shown.stdout)["services"].values()
    words = [word.replace("$$", "$") for word in [*service["entrypoint"], *service["command"]]]
    assert words == list(profile.winner.command)
    if profile.gpu != "cpu":
        devices = service["deploy"]["resources"]["reservations"]["devices"]
        assert devices[0]["count"] == profile.winner.cards


# vLLM's own parser, given words or a config file; answers with what each dest holds.
VLLM_PARSER = """
import importlib, json, sys
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
for name in ("launchers", "common", "openai"):
    try: make = importlib.import_module(f"vllm.entrypoints.{name}.cli_args").make_arg_parser; break
    except (ImportError, AttributeError): pass
parser = make(FlexibleArgumentParser())
answers = []
for args in json.load(sys.stdin):
    read = vars(parser.parse_args(args))
    answers.append({key: value for key, value in read.items() if key not in ("config", "model_tag")})
print("\\n@@" + json.dumps(answers, default=repr))
"""
PYTHON = os.environ.get("KIMI_TUNE_VLLM_PYTHON", sys.executable)
_VERSION = "0.32.0"
_TABLE = flag_table(_VERSION)
_PARSED = [
    "max-num-seqs",
    "max-num-batched-tokens",
    "max-model-len",
    "gpu-memory-utilization",
    "block-size",
    "enable-prefix-caching",
    "enable-chunked-prefill",
    "async-scheduling",
    "enforce-eager",
    "kv-cache-dtype",
    "scheduling-policy",
    "tensor-parallel-size",
    "stream-interval",
    "cudagraph-capture-sizes",
    "additional-config",
    "served-model-name",
    "revision",
    "tokenizer",
    "chat-template",
    "seed",
    "optimization-level",
]


def answers_of(questions: list[list[str]]) -> list[dict[str, Any]]:
    """What vLLM's parser reads from each argument list."""
    run = subprocess.run(
        [PYTHON, "-c", VLLM_PARSER],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(run.stdout.rpartition("@@")[2])
    return answers


@pytest.mark.vllm
def test_vllm_reads_from_every_export_what_was_launched(tmp_path: Path) -> None:
    """Generated flags and the hard ones: words of each export, and the config file as `--config` reads it,
    give vLLM's parser what the launched command gives it.
    """
    hard = {**HARD, "compilation-config": '{"mode":3}'}
    cases: list[Profile] = [make_profile(flags, version=_VERSION) for flags in ({}, FLAGS, hard)]

    @settings(
        max_examples=40,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        phases=(Phase.generate,),
        database=None,
    )
    @given(flags=launchable(_PARSED))
    def collect(flags: dict[str, FlagValue]) -> None:
        if not _TABLE.problems(flags):
            cases.append(make_profile(flags, version=_VERSION))

    collect()
    questions: list[list[str]] = []
    for number, profile in enumerate(cases):
        questions.append(["--model", *profile.winner.command[2:]])
        for format, reader in READERS.items():
            text = export(profile, format)
            if format == "vllm":
                file = tmp_path / f"{number}.yaml"
                file.write_text(text)
                questions.append(["--config", str(file)])
            else:
                questions.append(["--model", *reader(text)[2:]])
    answers = iter(answers_of(questions))
    for profile in cases:
        launched = next(answers)
        meant = flags_meant(profile.winner.flags, profile.model, _VERSION)
        for flag, value in meant.items():
            if isinstance(value, bool | int | float):
                assert launched[flag.replace("-", "_")] == value, flag
        for format in READERS:
            read = next(answers)
            if format == "helm" and "enable-prefix-caching" not in meant:
                read["enable_prefix_caching"] = launched["enable_prefix_caching"]
            assert read == launched, (format, profile.winner.command)
