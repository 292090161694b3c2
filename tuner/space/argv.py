"""A configuration as the words of a vLLM command line."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tuner.errors import BadRequest
from tuner.space.flag import Flag, FlagKind
from tuner.space.flags import FlagTable, flag_table, parse_version
from tuner.spec import FlagValue

SWAP = "swap-space"
_OFFLOADING = "kv-offloading-size"
_OFFLOADING_SINCE = parse_version("0.18.0")


def offloading_flag(version: str) -> str:
    """The flag that takes host memory for the KV cache, in GiB: swap-space up to 0.17, kv-offloading-size."""
    return _OFFLOADING if parse_version(version) >= _OFFLOADING_SINCE else SWAP


def rendered(config: Mapping[str, FlagValue], version: str) -> dict[str, FlagValue]:
    """The flags that are really passed to this vLLM, sorted by name.

    None is left out, and so is swap-space 0; other values of swap-space, in GiB, become kv-offloading-size
    from 0.18 on, where vLLM has no swap space any more.

    Raises:
        BadRequest: swap-space and kv-offloading-size are both set where they are the same flag.
    """
    passed = {name: value for name, value in config.items() if value is not None}
    size = passed.pop(SWAP, None)
    if size:
        name = offloading_flag(version)
        if name in passed:
            what = f"swap-space and {name} are both set"
            raise BadRequest(what, f"vLLM {version} knows one of them: set one")
        passed[name] = size
    return dict(sorted(passed.items()))


def to_argv(config: Mapping[str, FlagValue], version: str, table: FlagTable | None = None) -> list[str]:
    """The words of `rendered(config)`: ["--max-num-seqs", "256", "--no-enable-prefix-caching", …].

    The order is by name. Lists are words of their own, so a positional model has to stand in front of them.
    `table` says which flags take JSON and which cannot be negated; default the shipped one of `version`.
    """
    known = table or flag_table(version)
    words: list[str] = []
    for name, value in rendered(config, version).items():
        flag = known.get(name.split(".", 1)[0])
        words += _words(name, value, None if "." in name else flag)
    return words


def _words(name: str, value: object, flag: Flag | None) -> list[str]:
    option = f"--{name}"
    if isinstance(value, bool) and (flag is None or flag.kind is FlagKind.BOOL or flag.bare):
        if value:
            return [option]
        return [f"--no-{name}"] if flag is None or (flag.negatable and not flag.bare) else []
    if isinstance(value, list | tuple) and (flag is None or flag.kind is not FlagKind.JSON):
        each = [_word(item) for item in value]
        if flag is not None and flag.repeated:
            return [part for word in each for part in _pair(option, word)]
        return [option, *each]
    return _pair(option, _word(value))


def _pair(option: str, word: str) -> list[str]:
    """Two words, or one with "=" where argparse would take the value for an option."""
    if word.startswith("-") and not word[1:].replace(".", "", 1).isdigit():
        return [f"{option}={word}"]
    return [option, word]


def _word(value: object) -> str:
    if isinstance(value, bool | dict | list | tuple) or value is None:
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
