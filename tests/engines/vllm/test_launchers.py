"""Command lines from launcher templates, and servers in containers."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from contract import small_trace
from hypothesis import given
from hypothesis import strategies as st
from vllm_helpers import Faults

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm import VllmEngine
from tuner.engines.vllm.launchers import Template, plain_template
from tuner.errors import BadRequest, EngineUnavailable
from tuner.replay import Workload
from tuner.space import LaunchConfig

SMALL = LaunchConfig.of({"max-num-seqs": 4})
ADDRESS = ["--host", "127.0.0.1", "--port", "9", "--served-model-name", "t-1"]


def argv(template: str, *, environment: dict[str, str] | None = None) -> list[str]:
    parsed = Template.parse(template)
    command = parsed.command("m/M", ["--a", "1"], port=9, name="t-1", environment=environment or {})
    return list(command.argv)


def test_vllm_serve_takes_the_model_as_a_word() -> None:
    assert argv("vllm serve") == ["vllm", "serve", "m/M", "--a", "1", *ADDRESS]


def test_the_module_takes_it_as_an_option() -> None:
    module = "python -m vllm.entrypoints.openai.api_server"
    assert argv(module) == [*module.split(), "--model", "m/M", "--a", "1", *ADDRESS]


def test_placeholders() -> None:
    made = argv("run.sh '{name} on {port}' {model} {args} --last")
    assert made == ["run.sh", "t-1 on 9", "m/M", "--a", "1", *ADDRESS, "--last"]


def test_a_container_gets_a_name_the_environment_and_a_port_that_only_this_machine_sees() -> None:
    made = argv(
        "docker run --rm --gpus all -p {port}:{port} vllm/vllm-openai:v0.21.0 {args}",
        environment={"NO_COLOR": "1"},
    )
    assert made[:6] == ["docker", "run", "--name", "t-1", "-e", "NO_COLOR=1"]
    assert made[made.index("-p") + 1] == "127.0.0.1:9:9"
    image = made.index("vllm/vllm-openai:v0.21.0")
    assert made[image + 1 :] == ["m/M", "--a", "1", "--host", "0.0.0.0", *ADDRESS[2:]]


def test_a_container_on_the_hosts_network_listens_on_this_machine_only() -> None:
    made = argv("podman run --network=host vllm/vllm-openai:v0.21.0")
    assert "127.0.0.1" in made


def test_a_name_of_the_users_own_is_kept() -> None:
    template = Template.parse("docker run --name mine vllm/vllm-openai:v0.21.0")
    command = template.command("m", [], port=9, name="t-1", environment={})
    assert command.container == "mine"
    assert command.stop == ("docker", "stop", "mine")
    assert command.argv.count("--name") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "empty"), ("vllm 'serve", "quot"), ("vllm serve {prot}", "{prot}")],
)
def test_bad_templates(text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        Template.parse(text)


@given(st.lists(st.text(min_size=1).filter(lambda word: "{" not in word), min_size=1, max_size=6))
def test_words_survive_quoting_whatever_they_hold(words: list[str]) -> None:
    made = Template.parse(shlex.join(words)).words
    assert list(made) == [*words, "{args}"]


@pytest.mark.parametrize(
    ("template", "image"),
    [
        ("docker run -p {port}:{port} vllm/vllm-openai:v0.21.0 {args}", "vllm/vllm-openai:v0.21.0"),
        (
            "docker run -v /a:/b --gpus all registry:5000/x/vllm:v0.22.1 {args}",
            "registry:5000/x/vllm:v0.22.1",
        ),
        ("vllm serve", None),
    ],
)
def test_the_image_of_a_template(template: str, image: str | None) -> None:
    assert Template.parse(template).image == image


def test_the_version_comes_from_the_images_tag(make_engine: Callable[..., VllmEngine]) -> None:
    engine = make_engine(launcher="docker run vllm/vllm-openai:v0.22.1", version=None)
    assert engine.vllm_version == "0.22.1"
    with pytest.raises(EngineUnavailable, match="--vllm-version"):
        make_engine(launcher="docker run vllm/vllm-openai:latest", version=None)


def test_vllms_own_entry(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    package = tmp_path / "site" / "vllm"
    python.parent.mkdir()
    package.mkdir(parents=True)
    module = ("-m", "vllm.entrypoints.openai.api_server")
    assert plain_template(str(python), package).words[1:3] == module
    (python.parent / "vllm").touch()
    assert plain_template(str(python), package).words[1:3] == module  # no metadata: the command would die
    (tmp_path / "site" / "vllm-0.21.0.dist-info").mkdir()
    assert plain_template(str(python), package).words == (str(python.parent / "vllm"), "serve", "{args}")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` of our own; its folder."""
    place = tmp_path / "containers"
    place.mkdir()
    script = tmp_path / "docker"
    standin = Path(__file__).parent / "docker_standin.py"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{standin}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("DOCKER_STANDIN", str(place))
    return place


def container_engine(make_engine: Callable[..., VllmEngine], docker: Path) -> VllmEngine:
    tool = shlex.quote(str(docker.parent / "docker"))
    return make_engine(launcher=f"{tool} run --rm -p {{port}}:{{port}} vllm/vllm-openai:v0.21.0 {{args}}")


def calls(docker: Path) -> list[list[str]]:
    return [json.loads(line) for line in (docker / "calls").read_text().splitlines()]


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_container_serves_and_is_stopped_by_name(
    make_engine: Callable[..., VllmEngine],
    docker: Path,
    faults: Faults,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stubborn: bool,
) -> None:
    if stubborn:
        monkeypatch.setenv("DOCKER_STANDIN_STUBBORN", "1")
        faults.set("stubborn")
    engine = container_engine(make_engine, docker)
    with engine.launch(SMALL, tmp_path / "trial") as server:
        assert server.replay(Workload(small_trace(8, 200.0))).ok.all()
        name = server.served_name
        assert len(faults.survivors()) >= 1
    verbs = [call[0] for call in calls(docker) if call[0] != "top"]
    assert verbs == (["run", "stop", "kill", "rm"] if stubborn else ["run", "stop", "rm"])
    assert all(call[-1] == name for call in calls(docker) if call[0] in ("stop", "kill", "rm"))
    assert not faults.survivors()
    assert not (docker / name).exists()


def test_a_container_that_dies(
    make_engine: Callable[..., VllmEngine], docker: Path, faults: Faults, tmp_path: Path
) -> None:
    faults.set("dies", "ValueError: No available memory for the cache blocks.")
    with pytest.raises(LaunchFailure) as caught:
        container_engine(make_engine, docker).launch(SMALL, tmp_path / "trial")
    assert caught.value.kind is FailureKind.KV_MEMORY


def test_a_container_outlives_neither_the_engine(
    make_engine: Callable[..., VllmEngine], docker: Path, faults: Faults, tmp_path: Path
) -> None:
    engine = container_engine(make_engine, docker)
    engine.launch(SMALL, tmp_path / "trial")
    engine.close()
    assert calls(docker)[-1][0] == "rm"
    assert not faults.survivors()
