"""What a real launch runs is what an export says, but for the address and the name of the server."""

from __future__ import annotations

import pytest
from exported import FLAGS, READERS, flags_read, make_profile

from tuner.engines.vllm.launchers import Template
from tuner.profiles import export
from tuner.space.argv import to_argv

ADDRESS = ("--host", "--port", "--served-model-name")
LAUNCHERS = [
    "vllm serve",
    "docker run --gpus all -p {port}:{port} vllm/vllm-openai:v0.21.0",
    "python -m vllm.entrypoints.openai.api_server",
]


def without_address(words: list[str]) -> list[str]:
    for option in ADDRESS:
        at = words.index(option)
        del words[at : at + 2]
    return words


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("format", [format for format in READERS if format != "helm"])
def test_a_launch_and_an_export_are_the_same_words(format: str, launcher: str) -> None:
    command = Template.parse(launcher).command(
        "org/model", to_argv(FLAGS, "0.21.0"), port=8123, name="kimi-tune-1a", environment={}
    )
    launched = without_address(list(command.argv))
    exported = READERS[format](export(make_profile(), format))[2:]
    assert launched[-len(exported) :] == exported
    head = [word.replace("{port}", "8123") for word in launcher.split()]
    rest = launched[: -len(exported)]
    assert [word for word in rest if word not in head and word != "127.0.0.1:8123:8123"] in (
        [],
        ["--model"],
        ["--name", "kimi-tune-1a"],
    )


def test_the_chart_alone_says_the_same_in_another_order() -> None:
    exported = READERS["helm"](export(make_profile(), "helm"))
    assert flags_read(exported) == flags_read(["vllm", "serve", "org/model", *to_argv(FLAGS, "0.21.0")])
