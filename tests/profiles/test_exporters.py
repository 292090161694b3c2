"""The contract of every exporter, each read back by its real reader."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from exported import FLAGS, NASTY, READERS, flags_meant, flags_read, launchable, make_profile
from hypothesis import HealthCheck, Phase, given, settings

from tuner.errors import BadRequest
from tuner.profiles import Profile, export, formats
from tuner.spec import FlagValue


def test_every_format_has_a_reader_here() -> None:
    assert set(formats()) == set(READERS)


NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.mark.parametrize("format", formats())
class TestContract:
    def test_names_the_model_and_every_flag(self, format: str) -> None:
        text = export(make_profile(), format)
        assert "org/model" in text
        said = text.replace("enablePrefixCaching", "enable-prefix-caching") if format == "helm" else text
        assert all(flag in said for flag in FLAGS)

    def test_gives_exactly_the_words_that_were_launched(self, format: str) -> None:
        profile = make_profile()
        words = READERS[format](export(profile, format))
        assert same_words(format, words, list(profile.winner.command))

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

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None, phases=NO_SHRINKING)
    @given(flags=launchable(), model=NASTY.filter(lambda name: name[:1] not in ("", "-")))
    def test_gives_the_same_flags_whatever_their_values(
        self, format: str, flags: dict[str, FlagValue], model: str
    ) -> None:
        profile = make_profile(flags, model=model)
        words = READERS[format](export(profile, format))
        assert same_words(format, words, list(profile.winner.command))
        meant = flags_meant(flags, model)
        if format == "helm" and len(profile.winner.command) > 3:
            meant.setdefault("enable-prefix-caching", True)
        assert flags_read(words) == meant


def split(words: list[str]) -> list[str]:
    return [part for word in words for part in (word.split("=", 1) if word[:2] == "--" else [word])]


def same_words(format: str, words: list[str], launched: list[str]) -> bool:
    """Word for word; the Helm chart alone orders them itself, and always says whether prefixes are cached."""
    if format == "vllm":
        # a file holds a key once, so an option that is given again takes its value with "="
        return split(words) == split(launched)
    if format != "helm":
        return words == launched
    said = Counter(words) - Counter(launched)
    return (
        words[:3] == launched[:3]
        and not Counter(launched) - Counter(words)
        and (not said or said == Counter(["--enable-prefix-caching"]))
    )


@pytest.mark.parametrize("provenance", ["simulated", "measured"])
def test_bash_and_sh_read_the_script(provenance: str) -> None:
    text = export(make_profile(provenance=provenance), "shell")
    for shell in ("bash", "sh"):
        subprocess.run([shell, "-n"], input=text.encode(), check=True)
    assert text.startswith("#!/bin/sh\n") == (provenance == "measured")
    assert shlex.split(text.split("exec ", 1)[1].replace("\\\n", ""))[:2] == ["vllm", "serve"]


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
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
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


PARALLEL = {"tensor-parallel-size": 4, "max-num-seqs": 64}


def test_every_card_of_a_launch_is_asked_for() -> None:
    profile = make_profile(PARALLEL, gpu="8xH100-80G")
    (container,) = kubernetes(profile)["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    (service,) = yaml.safe_load(export(profile, "compose"))["services"].values()
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 4
    (model,) = yaml.safe_load(export(profile, "helm"))["servingEngineSpec"]["modelSpec"]
    assert model["requestGPU"] == 4 and model["vllmConfig"]["tensorParallelSize"] == 4


def shared_memory(profile: Profile) -> set[str]:
    volumes = {v["name"]: v for v in kubernetes(profile)["spec"]["template"]["spec"]["volumes"]}
    (service,) = yaml.safe_load(export(profile, "compose"))["services"].values()
    (model,) = yaml.safe_load(export(profile, "helm"))["servingEngineSpec"]["modelSpec"]
    own = [v["emptyDir"]["sizeLimit"] for v in model.get("extraVolumes", []) if v["name"] == "shm"]
    mounted = [m["mountPath"] for m in model.get("extraVolumeMounts", []) if m["name"] == "shm"]
    # the chart makes a volume `shm` of its own with a tensorParallelSize: there must not be two
    assert ("tensorParallelSize" in model.get("vllmConfig", {})) != bool(own)
    assert mounted == ["/dev/shm"] * len(own)
    (charted,) = own or [model["shmSize"]]
    sizes = {volumes["shm"]["emptyDir"]["sizeLimit"], service["shm_size"], charted}
    return {size.rstrip("Gigb") for size in sizes}


def test_shared_memory_holds_the_ranks_and_the_offloaded_blocks() -> None:
    assert shared_memory(make_profile({})) == {"2"}
    assert shared_memory(make_profile(PARALLEL, gpu="4xH100-80G")) == {"16"}
    assert shared_memory(make_profile({"swap-space": 16})) == {"18"}
    offloaded = {**PARALLEL, "swap-space": 30.5}
    assert shared_memory(make_profile(offloaded, gpu="4xH100-80G")) == {"47"}


def test_the_hubs_cache_is_mounted_with_the_files_that_a_snapshot_links_to() -> None:
    cache = "/cache/hub/models--org--name"
    (service,) = yaml.safe_load(export(make_profile(model=f"{cache}/snapshots/0a1b"), "compose"))[
        "services"
    ].values()
    assert service["volumes"][1]["source"] == service["volumes"][1]["target"] == cache


def test_the_chart_asks_for_no_runtime_of_gpus_where_there_are_none() -> None:
    on_cpu = yaml.safe_load(export(make_profile({}, gpu="cpu"), "helm"))["servingEngineSpec"]
    assert on_cpu["runtimeClassName"] == "" and on_cpu["modelSpec"][0]["requestGPU"] == 0
    on_gpu = yaml.safe_load(export(make_profile({}), "helm"))["servingEngineSpec"]
    assert "runtimeClassName" not in on_gpu


def test_a_default_of_the_chart_does_not_switch_prefix_caching_off() -> None:
    (model,) = yaml.safe_load(export(make_profile({"max-num-seqs": 8}), "helm"))["servingEngineSpec"][
        "modelSpec"
    ]
    assert model["vllmConfig"]["enablePrefixCaching"] is True


HELM_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "repository", "tag", "modelURL", "requestMemory", "shmSize"), str),
    **dict.fromkeys(("replicaCount", "requestCPU", "requestGPU"), int),
    **dict.fromkeys(("env", "extraVolumes", "extraVolumeMounts"), list),
    "vllmConfig": dict,
}
"""Fields of the chart's modelSpec with their kinds in its values.schema.json."""


@pytest.mark.parametrize("flags", [{}, FLAGS, PARALLEL])
def test_the_charts_schema_knows_every_value(flags: dict[str, FlagValue]) -> None:
    engine = yaml.safe_load(export(make_profile(flags, model="/models/mine"), "helm"))["servingEngineSpec"]
    assert set(engine) == {"containerPort", "strategy", "startupProbe", "livenessProbe", "modelSpec"}
    (model,) = engine["modelSpec"]
    assert {"name", "repository", "tag", "modelURL", "replicaCount"} <= set(model) <= set(HELM_KINDS)
    assert {"requestCPU", "requestMemory", "requestGPU"} <= set(model)
    assert all(isinstance(value, HELM_KINDS[key]) for key, value in model.items())
    for probe in (engine["startupProbe"], engine["livenessProbe"]):
        assert set(probe) == {"initialDelaySeconds", "periodSeconds", "failureThreshold", "httpGet"}
    assert [m["name"] for m in model["extraVolumeMounts"]] == [v["name"] for v in model["extraVolumes"]]
    assert all(isinstance(word, str) for word in model.get("vllmConfig", {}).get("extraArgs", []))
    assert len(f"release-{model['name']}-vllm-stack") <= 63
    assert engine["startupProbe"]["periodSeconds"] * engine["startupProbe"]["failureThreshold"] > 5 * 42.5


SECRETS: dict[str, FlagValue] = {
    "api-key": "sesame-open",
    "hf-token": "hf_abcdefghijklmnopqrstuvwx",
    "model-loader-extra-config": '{"aws_secret_access_key":"wJalrXUtnFEMI"}',
    "otlp-traces-endpoint": "https://me:hunter22@traces.example/v1",
    "ssl-keyfile-password": "hunter23",
}
TELLTALES = ("sesame-open", "hf_abcdefgh", "wJalrXUtnFEMI", "hunter22", "hunter23")


@pytest.mark.parametrize("format", formats())
def test_secret_flags_are_left_out_and_named(format: str) -> None:
    profile = make_profile({**FLAGS, **SECRETS})
    text = export(profile, format)
    assert not [secret for secret in TELLTALES if secret in text]
    assert READERS[format](text) == READERS[format](export(make_profile(), format))
    assert all(flag in text for flag in SECRETS) and "left out as secret" in text


def test_the_words_of_another_vllm_are_kept() -> None:
    """An installed vLLM may write a flag as the tables that ship do not; what was launched is exported."""
    profile = make_profile({"max-num-seqs": 64, "cudagraph-capture-sizes": (1, 2)})
    launched = ("vllm", "serve", "org/model", "--max-num-seqs", "64", "--cudagraph-capture-sizes", "1", "2")
    swapped = replace(profile, winner=replace(profile.winner, command=launched))
    assert READERS["json"](export(swapped, "json")) == list(launched)


@pytest.mark.parametrize(
    "command",
    [
        ("vllm", "serve", "org/model", "--max-num-seqs", "32"),
        ("vllm", "serve", "org/model", "--max-num-seqs", "64", "--enforce-eager"),
        ("vllm", "serve", "org/model"),
    ],
)
def test_a_command_that_does_not_say_what_the_flags_say_is_refused(command: tuple[str, ...]) -> None:
    profile = make_profile({"max-num-seqs": 64})
    changed = replace(profile, winner=replace(profile.winner, command=command))
    with pytest.raises(BadRequest, match=r"not the same in winner.flags and in winner.command"):
        export(changed, "shell")
