"""What must not land in a file that is passed on: keys, tokens, passwords."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from tuner.masking import SECRET_FLAGS, mask
from tuner.profiles.profile import Measured, Profile
from tuner.space.config import LaunchConfig

_NAMES = re.compile(
    r"(^|[-_.])(api[-_]?keys?|(hf|auth|access|session)[-_]?tokens?|access[-_]key([-_]id)?|bearer"
    r"|pass(word|wd|phrase)|secrets?|credentials?|private[-_]?key)([-_.]|$)",
    re.IGNORECASE,
)


def is_secret(flag: str, value: Any) -> bool:
    """Whether a flag's value is one: by the flag's name, by a key of its JSON, or by the look of it."""
    if value is None or isinstance(value, bool | int | float):
        return False
    if flag in SECRET_FLAGS or _NAMES.search(flag):
        return True
    if isinstance(value, dict):
        return any(is_secret(str(key), item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(is_secret("", item) for item in value)
    if mask(str(value)) != str(value):
        return True
    inner = _parsed(str(value))
    return isinstance(inner, dict | list) and is_secret("", inner)


def without_secrets(profile: Profile) -> Profile:
    """The profile with every secret flag left out of flags, effective values, commands and ties; the winner's
    note says which.
    """
    winner = _cleared(profile.winner)
    gone = [flag for flag in profile.winner.flags if flag not in winner.flags]
    if gone:
        said = f"left out as secret: {', '.join(gone)}; give it where the server starts"
        winner = replace(winner, note=f"{winner.note}; {said}" if winner.note else said)
    return replace(
        profile,
        winner=winner,
        baseline=_cleared(profile.baseline),
        ties=tuple(replace(tie, flags=_kept(tie.flags)) for tie in profile.ties),
        flag_gains=tuple(row for row in profile.flag_gains if not is_secret(row.flag, row.value)),
    )


def _kept(flags: LaunchConfig) -> LaunchConfig:
    return LaunchConfig.of({flag: value for flag, value in flags.items() if not is_secret(flag, value)})


def _cleared(measured: Measured) -> Measured:
    flags = _kept(measured.flags)
    secret = {f"--{flag}" for flag in measured.flags if flag not in flags}
    effective = {flag: v for flag, v in measured.effective.items() if not is_secret(flag, v)}
    return replace(measured, flags=flags, effective=effective, command=_without(measured.command, secret))


def _without(command: tuple[str, ...], options: set[str]) -> tuple[str, ...]:
    """The command without these options and their values, whether `--x y`, `--x=y` or several values."""
    words: list[str] = []
    dropping = False
    for word in command:
        if word.startswith("--"):
            dropping = word.partition("=")[0] in options
        if not dropping:
            words.append(word)
    return tuple(words)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text[:1] in "{[" else None
    except (ValueError, RecursionError):
        return None
