"""What a vLLM accepts: the table of its flags, shipped for 0.16 to 0.33 or read from the installed one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tuner.errors import BadRequest
from tuner.space.flag import Flag, FlagKind
from tuner.space.flag_cache import load_cached, store_cached
from tuner.space.flag_source import read_flags
from tuner.space.installed import Installed, find_vllm

__all__ = [
    "QUALITY_FLAGS",
    "RESERVED",
    "Flag",
    "FlagKind",
    "FlagTable",
    "Installed",
    "find_vllm",
    "flag_table",
    "installed_flag_table",
    "parse_version",
    "quality_flags",
    "shipped_versions",
]

SAMPLED = frozenset({"swap-space"})
"""Names that a space may use in every version: to_argv renders them as the version's own flag."""


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The flags of one vLLM version by name. `gone` says what became of flags that other versions have."""

    version: str
    flags: Mapping[str, Flag]
    gone: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Flag | None:
        """The flag of exactly this name (or of one of its long aliases); None otherwise."""
        return self.flags.get(name) or self._aliases().get(name)

    def nearest(self, name: str) -> str | None:
        """The known name that is most like this one."""
        plain = name.strip().lstrip("-").replace("_", "-").lower()
        if plain in self.flags:
            return plain
        known = [*self.flags, *SAMPLED]
        starting = [flag for flag in known if plain and flag.startswith(plain)]
        close = difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
        return min(starting, key=len) if starting else (close[0] if close else None)

    def unknown(self, name: str) -> BadRequest | None:
        """Why vLLM would not know this name; None where it does."""
        base = name.split(".", 1)[0]
        flag = self.get(base)
        if name in SAMPLED or (flag is not None and (base == name or flag.kind is FlagKind.JSON)):
            return None
        if base in self.gone:
            return BadRequest(f"flag {name!r}: {self.gone[base]}", "leave it out")
        nearest = self.nearest(base)
        mend = f"did you mean {nearest!r}?" if nearest else "see vllm serve --help=all"
        if nearest and nearest == base.lstrip("-").replace("_", "-"):
            mend = f"write it as vLLM's documentation does, without dashes in front: {nearest!r}"
        return BadRequest(f"flag {name!r}: vLLM {self.version} does not know it", mend)

    def problems(self, config: Mapping[str, object]) -> list[BadRequest]:
        """Everything that vLLM's argument parser would refuse in this configuration."""
        found: list[BadRequest] = []
        for name, value in config.items():
            problem = self.problem(name, value)
            if problem is not None:
                found.append(problem)
        return found

    def problem(self, name: str, value: object) -> BadRequest | None:
        """Why vLLM's argument parser would refuse this flag with this value; None where it would not."""
        unknown = self.unknown(name)
        if unknown is not None:
            return unknown
        flag = self.get(name) or (_SWAP if name in SAMPLED else None)
        reason = flag.problem(value) if flag is not None else None
        return BadRequest(f"flag {name!r} = {_shown(value)}", f"it {reason}") if reason else None

    def check(self, config: Mapping[str, object]) -> list[BadRequest]:
        """Refuse a configuration that vLLM's argument parser would refuse.

        Returns:
            An empty list, so that callers may treat it as the list of problems.

        Raises:
            BadRequest: the first problem, with the nearest known name for an unknown flag.
        """
        found = self.problems(config)
        if found:
            raise found[0]
        return found

    def _aliases(self) -> dict[str, Flag]:
        return {alias: flag for flag in self.flags.values() for alias in flag.aliases}


_SWAP = Flag("swap-space", FlagKind.FLOAT, low=0.0)

QUALITY_FLAGS = frozenset(
    {
        "additional-config",
        "calculate-kv-scales",
        "diffusion-config",
        "dtype",
        "hf-overrides",
        "kv-cache-dtype",
        "kv-cache-dtype-skip-layers",
        "kv-sharing-fast-prefill",
        "override-generation-config",
        "quantization",
        "quantization-config",
        "spec-method",
        "spec-model",
        "spec-tokens",
        "speculative-config",
        "watermark-config",
    }
)
"""Flags that can change what the model answers, not only how fast."""
RESERVED: Mapping[str, str] = {
    "api-key": "the replay sends no key",
    "config": "its flags would go past every check",
    "hf-token": "it is a secret: set HF_TOKEN in the environment",
    "headless": "a server without an API cannot be measured",
    "host": "kimi-tune chooses where the server listens",
    "model": "give it with --model",
    "port": "kimi-tune chooses where the server listens",
    "served-model-name": "kimi-tune gives each server a name of its own",
    "ssl-certfile": "the replay speaks plain HTTP",
    "ssl-keyfile": "the replay speaks plain HTTP",
    "uds": "kimi-tune chooses where the server listens",
}
"""Flags that a space cannot hold, and why."""
_HARMLESS = {"kv-cache-dtype": ("auto",), "dtype": ("auto",), "calculate-kv-scales": (False,)}


def quality_flags(config: Mapping[str, object]) -> tuple[str, ...]:
    """The flags of a configuration that can change the answers' quality, sorted."""
    return tuple(
        sorted(
            name
            for name, value in config.items()
            if name.split(".", 1)[0] in QUALITY_FLAGS
            and value is not None
            and value not in _HARMLESS.get(name, ())
        )
    )


def parse_version(text: str) -> Version:
    """A vLLM version such as 0.21.0, v0.21.0 or 0.32.0+cpu.

    Raises:
        BadRequest: not a version.
    """
    try:
        return Version(text.strip())
    except InvalidVersion:
        raise BadRequest(f"vLLM version {text!r} is not a version", "write it like 0.21.0") from None


@cache
def flag_table(version: str) -> FlagTable:
    """The shipped table for a version: of that version, else of the nearest lower, else the oldest.

    Raises:
        BadRequest: not a version.
    """
    asked = Version(parse_version(version).base_version)
    data = _shipped()
    known = [Version(text) for text in data["versions"]]
    chosen = max((each for each in known if each <= asked), default=known[0])
    flags: dict[str, Flag] = {}
    for name, spans in data["flags"].items():
        for span in spans:
            if Version(span["since"]) <= chosen <= Version(span["until"]):
                flags[name] = Flag.from_json(name, span["flag"])
    return FlagTable(version, flags, _gone(flags, chosen))


def shipped_versions() -> tuple[str, ...]:
    """The versions whose flags ship with the project, oldest first."""
    return tuple(_shipped()["versions"])


def installed_flag_table(package_dir: Path, version: str) -> FlagTable:
    """The flags of the vLLM in this folder, read from its text; kept by version in the user's cache folder.

    Raises:
        BadRequest: the folder holds no readable vLLM.
    """
    flags = load_cached(package_dir, version)
    if flags is None:
        try:
            flags = read_flags(package_dir)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise BadRequest(
                f"vLLM {version} in {package_dir} cannot be read: {error}", "install it again"
            ) from None
        store_cached(package_dir, version, flags)
    return FlagTable(version, flags, _gone(flags, parse_version(version)))


@cache
def _shipped() -> dict:  # type: ignore[type-arg]
    text = resources.files("tuner.space").joinpath("data/vllm_flags.json").read_text(encoding="utf-8")
    data: dict = json.loads(text)  # type: ignore[type-arg]
    return data


def _gone(flags: Iterable[str], version: Version) -> dict[str, str]:
    """What to say of shipped flags that this version does not have."""
    present = set(flags)
    words: dict[str, str] = {}
    releases = [Version(text) for text in _shipped()["versions"]]
    for name, spans in _shipped()["flags"].items():
        if name in present:
            continue
        first, last = Version(spans[0]["since"]), Version(spans[-1]["until"])
        if first > version:
            words[name] = f"vLLM {version} does not have it yet, it came with {first}"
        elif last < version:
            after = next((each for each in releases if each > last), version)
            words[name] = f"vLLM {version} does not have it any more, it is gone since {after}"
    return words


def _shown(value: object) -> str:
    return json.dumps(value, default=str)
