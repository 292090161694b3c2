"""The contract of every exporter, each read back by its real reader."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import BadRequest
from tuner.profiles import Measured, Profile, UsersRow, export, formats
from tuner.space.argv import to_argv
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue

FLAGS: dict[str, FlagValue] = {
    "max-num-seqs": 512,
    "gpu-memory-utilization": 0.94,
    "enable-prefix-caching": False,
    "async-scheduling": True,
    "cudagraph-capture-sizes": (1, 2, 4),
    "kv-cache-dtype": "fp8",
}


def make_profile(
    flags: dict[str, FlagValue] = FLAGS,
    *,
    model: str = "org/model",
    provenance: str = "simulated",
    gpu: str = "2xA100-80G",
    study: str = "a100-80g-model-1a2b3c4d",
) -> Profile:
    measured = Measured(
        flags=LaunchConfig.of(flags),
        command=("vllm", "serve", model),
        throughput_rps=3.25,
        output_tps=650.0,
        p99_s=27.5,
        p99_interval_s=(26.0, None),
        mean_s=9.0,
        users=96,
        kv_tokens=186_000,
        startup_s=42.5,
        effective={"max-num-seqs": 512},
        note="",
    )
    return Profile(
        study=study,
        gpu=gpu,
        model=model,
        vllm_version="0.21.0",
        slo={"e2e_p99_s": 30.0},
        trace={"path": "shipped", "digest": "00ff", "requests": 2000},
        window=(0.5, 1.0),
        start_rps=1.67,
        requests=1000,
        seed=0,
        recommendation="tuned",
        winner=measured,
        baseline=measured,
        gain=1.42,
        provenance=provenance,
        users_table=(UsersRow(10, 1.0, 2.0, 0.5, None),),
        created="2026-01-01T00:00:00+00:00",
    )


def words_of_vllm_config(text: str) -> list[str]:
    """What any vLLM makes of a config file: a false is dropped, the items of a list are words."""
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        if value is True:
            words.append(f"--{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        elif value is not False:
            words += [f"--{key}", str(value)]
    assert words[0] == "--model"
    return ["vllm", "serve", *words[1:]]


def words_of_shell(text: str) -> list[str]:
    """What a shell makes of the script, `exec` replaced by something that prints its words."""
    script = text.replace("\nexec ", "\nprintf '%s\\0' ", 1)
    shown = subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=True)
    return shown.stdout.decode().split("\0")[:-1]


def words_of_compose(text: str) -> list[str]:
    (service,) = yaml.safe_load(text)["services"].values()
    words = service["entrypoint"] + service["command"]
    assert not any(re.search(r"(?<!\$)\$(?!\$)", word.replace("$$", "")) for word in words)
    return [word.replace("$$", "$") for word in words]


def words_of_kubernetes(text: str) -> list[str]:
    deployment, service = yaml.safe_load_all(text)
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [word.replace("$$", "$") for word in container["command"] + container["args"]]


def words_of_systemd(text: str) -> list[str]:
    """ExecStart= as systemd.service(5) reads it: continued lines, quotes, C escapes, doubled % and $."""
    joined = text.replace("\\\n", " ")
    (line,) = [line for line in joined.splitlines() if line.startswith("ExecStart=")]
    words = []
    for quoted, bare in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line.removeprefix("ExecStart=")):
        word = bare or re.sub(r"\\(U[0-9a-f]{8}|x[0-9a-f]{2}|.)", _unescaped, quoted)
        words.append(word.replace("%%", "%").replace("$$", "$"))
    assert words[0] == "/usr/bin/env"
    return words[1:]


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if code[0] in "Ux" and len(code) > 1 else code


def words_of_json(text: str) -> list[str]:
    words: list[str] = json.loads(text)["argv"]
    return words


READERS: dict[str, Callable[[str], list[str]]] = {
    "vllm": words_of_vllm_config,
    "shell": words_of_shell,
    "compose": words_of_compose,
    "kubernetes": words_of_kubernetes,
    "systemd": words_of_systemd,
    "json": words_of_json,
}


def test_every_format_has_a_reader_here() -> None:
    assert set(formats()) == set(READERS)


@pytest.mark.parametrize("format", formats())
class TestContract:
    def test_names_the_model_and_every_flag(self, format: str) -> None:
        text = export(make_profile(), format)
        assert "org/model" in text
        for flag in FLAGS:
            assert flag in text

    def test_gives_exactly_the_words_of_the_command(self, format: str) -> None:
        profile = make_profile()
        words = READERS[format](export(profile, format))
        assert words == ["vllm", "serve", "org/model", *to_argv(profile.winner.flags, "0.21.0")]

    def test_a_simulated_profile_says_so_in_its_first_line(self, format: str) -> None:
        assert "SIMULATED" in export(make_profile(), format).splitlines()[0]
        assert "SIMULATED" not in export(make_profile(provenance="measured"), format)

    def test_says_what_it_carries_and_for_which_vllm(self, format: str) -> None:
        text = export(make_profile(), format)
        assert "3.25" in text and "0.21.0" in text

    def test_the_default_has_no_flags(self, format: str) -> None:
        words = READERS[format](export(make_profile({}), format))
        assert words == ["vllm", "serve", "org/model"]

    def test_holds_no_secret(self, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
        assert "hf_verysecret" not in export(make_profile(), format)

    def test_cannot_hold_a_nul(self, format: str) -> None:
        with pytest.raises(BadRequest, match="NUL"):
            export(make_profile({"served-model-name": "a\0b"}), format)

    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(data=st.data())
    def test_survives_nasty_values(self, format: str, data: st.DataObject) -> None:
        text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
        nasty = text | st.sampled_from(
            [
                "a b",
                "it's",
                '"',
                "$HOME",
                "$(id)",
                "`id`",
                "%n",
                "a\nb",
                "\\",
                "ü",
                "on",
                "1e3",
                "# x",
                "${A:-b}",
            ]
        )
        model = data.draw(nasty.filter(lambda name: not name.startswith("-")))
        value = data.draw(nasty)
        profile = make_profile({"served-model-name": value, "max-num-seqs": 64}, model=model)
        words = READERS[format](export(profile, format))
        assert words == ["vllm", "serve", model, *to_argv(profile.winner.flags, "0.21.0")]


@pytest.mark.parametrize("provenance", ["simulated", "measured"])
def test_bash_and_sh_read_the_script(provenance: str) -> None:
    text = export(make_profile(provenance=provenance), "shell")
    for shell in ("bash", "sh"):
        subprocess.run([shell, "-n"], input=text.encode(), check=True)
    assert text.startswith("#!/bin/sh\n") == (provenance == "measured")
    assert shlex.split(text.split("exec ", 1)[1].replace("\\\n", ""))[:2] == ["vllm", "serve"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "vllm.service"
    unit.write_text(export(make_profile(), "systemd"))
    subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], check=True)


def test_a_false_flag_is_switched_off_in_every_vllm() -> None:
    """Up to 0.27 a `false` in the file is dropped without a word."""
    entries = yaml.safe_load(export(make_profile(), "vllm"))
    assert entries["no-enable-prefix-caching"] is True and False not in entries.values()
    assert entries["gpu-memory-utilization"] == 0.94 and entries["max-num-seqs"] == 512


def test_numbers_that_are_texts_stay_texts() -> None:
    flags: dict[str, FlagValue] = {"served-model-name": "007", "revision": "1e3"}
    entries = yaml.safe_load(export(make_profile(flags), "vllm"))
    assert entries["served-model-name"] == "007" and entries["revision"] == "1e3"


def kubernetes(profile: Profile) -> dict[str, Any]:
    deployment: dict[str, Any] = next(yaml.safe_load_all(export(profile, "kubernetes")))
    return deployment


def test_cards_and_start_up_time_reach_kubernetes() -> None:
    deployment = kubernetes(make_profile())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > 5 * 42.5
    name = deployment["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 63
    assert "resources" not in kubernetes(make_profile(gpu="cpu"))["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("study", ["x" * 200, "Ünïcode_und.Punkte", "---"])
def test_names_are_labels_that_kubernetes_takes(study: str) -> None:
    name = kubernetes(make_profile(study=study))["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 63


@pytest.mark.parametrize("format", ["compose", "kubernetes"])
def test_a_local_model_is_mounted_where_it_is(format: str) -> None:
    text = export(make_profile(model="/models/mine"), format)
    assert text.count("/models/mine") >= 3


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(BadRequest, match="helmet"):
        export(make_profile(), "helmet")


@pytest.mark.vllm
def test_vllm_reads_its_own_config_file(tmp_path: Path) -> None:
    """vLLM's own parser, with the options of these flags."""
    argparse_utils = pytest.importorskip("vllm.utils.argparse_utils")
    profile = make_profile()
    path = tmp_path / "config.yaml"
    path.write_text(export(profile, "vllm"))
    words = argparse_utils.FlexibleArgumentParser().load_config_file(str(path))
    assert words == ["--model", "org/model", *to_argv(profile.winner.flags, profile.vllm_version)]
