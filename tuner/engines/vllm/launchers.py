"""How a server's command line is made: vLLM's own entry points, or a template of the user's.

A template is split like a shell would, without a shell: `vllm serve`, `python -m
vllm.entrypoints.openai.api_server`, or `docker run --rm --gpus all -p {port}:{port} IMAGE {args}`. `{args}`
stands for all arguments (at the end where it is missing), `{port}` and `{name}` for the trial's port and
name, `{model}` for the model, which is then left out of `{args}`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tuner.errors import BadRequest, EngineUnavailable

_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_KNOWN = {"args", "port", "name", "model"}
_CONTAINERS = {"docker", "podman", "nerdctl"}


class LauncherKind(StrEnum):
    """AUTO forks servers from a process that has imported vLLM, and starts them plainly where it cannot."""

    AUTO = "auto"
    WARM = "warm"
    PLAIN = "plain"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. A container is stopped by name: `stop`, `kill`, `remove` (all empty: no container)."""

    argv: tuple[str, ...]
    container: str = ""
    stop: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    top: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A launcher template, checked."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Split and check it.

        Raises:
            BadRequest: empty, unbalanced quotes, or a placeholder that does not exist.
        """
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise BadRequest(f"--launcher {text!r}: {error}", "close the quotes") from error
        if not words:
            raise BadRequest("--launcher is empty", "write it like 'vllm serve'")
        unknown = {name for word in words for name in _PLACEHOLDER.findall(word)} - _KNOWN
        if unknown:
            names = ", ".join("{" + name + "}" for name in sorted(unknown))
            raise BadRequest(
                f"--launcher: no placeholder {names}", "there are {args}, {port}, {name} and {model}"
            )
        return cls(words if "{args}" in words else (*words, "{args}"))

    @property
    def container_tool(self) -> str | None:
        """`docker` or the like (its path as written) where the template runs a container."""
        tool = self.words[0]
        return tool if Path(tool).name in _CONTAINERS and "run" in self.words[1:] else None

    @property
    def image(self) -> str | None:
        """The container's image, where it can be told: the first word with a tag behind `run`."""
        if not self.container_tool:
            return None
        after = self.words[self.words.index("run") + 1 :]
        tagged = (w for w in after if re.fullmatch(r"[\w./-]+(?::\d+/[\w./-]+)?:[\w.-]+", w))
        return next((w for w in tagged if not re.fullmatch(r"[\d.:]+", w)), None)

    def command(
        self, model: str, flags: Sequence[str], *, port: int, name: str, environment: Mapping[str, str]
    ) -> Command:
        """The command for one launch; `flags` are those of the configuration, the address is added here."""
        host = "127.0.0.1"
        words = self.words
        if self.container_tool:
            words = self._named(name, environment)
            if "--network=host" not in words and "host" not in words:
                host = "0.0.0.0"  # noqa: S104 - inside the container; -p decides what is published
        module = any(word.endswith("api_server") for word in words)
        given = [] if any("{model}" in word for word in words) else ["--model", model] if module else [model]
        args = [*given, *flags, "--host", host, "--port", str(port), "--served-model-name", name]
        argv: list[str] = []
        for word in words:
            if word == "{args}":
                argv += args
            else:
                for placeholder, value in (("port", str(port)), ("name", name), ("model", model)):
                    word = word.replace("{" + placeholder + "}", value)
                argv.append(word)
        if not (tool := self.container_tool):
            return Command(tuple(argv))
        called = _option(argv, "--name") or name
        return Command(
            tuple(argv),
            called,
            stop=(tool, "stop", called),
            kill=(tool, "kill", called),
            remove=(tool, "rm", "-f", called),
            top=(tool, "top", called, "-eo", "pid"),
        )

    def _named(self, name: str, environment: Mapping[str, str]) -> tuple[str, ...]:
        at = self.words.index("run") + 1
        added = [] if _option(self.words, "--name") else ["--name", name]
        added += [word for key, value in sorted(environment.items()) for word in ("-e", f"{key}={value}")]
        # published to this machine only: the server takes orders that strangers must not give
        after = ["127.0.0.1:{port}:{port}" if word == "{port}:{port}" else word for word in self.words[at:]]
        return (*self.words[:at], *added, *after)


def plain_template(python: str, package_dir: Path) -> Template:
    """vLLM's own entry in the environment of `python`.

    The `vllm` command needs the metadata of a distribution named vllm (the CPU build's has another name);
    where that is missing, the module does.
    """
    script = Path(python).parent / "vllm"
    if script.exists() and any(package_dir.parent.glob("vllm-*.dist-info")):
        return Template((str(script), "serve", "{args}"))
    return Template((python, "-m", "vllm.entrypoints.openai.api_server", "{args}"))


def template_version(template: Template | None) -> str:
    """The vLLM version that the tag of a template's image names.

    Raises:
        EngineUnavailable: it names none.
    """
    image = template.image if template else None
    match = re.search(r":v?(\d+\.\d+\.\d+)", image or "")
    if match is None:
        raise EngineUnavailable(
            "the vLLM version behind --launcher is not known", "name it with --vllm-version"
        )
    return match[1]


def _option(words: Sequence[str], option: str) -> str | None:
    for index, word in enumerate(words):
        if word.startswith(option + "="):
            return word.split("=", 1)[1]
        if word == option and index + 1 < len(words):
            return words[index + 1]
    return None
