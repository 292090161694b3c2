"""A POSIX shell script."""

from __future__ import annotations

import shlex

from tuner.profiles.exporters.common import comment, serve_words
from tuner.profiles.profile import Profile


def export(profile: Profile) -> str:
    """A script that becomes the server; further options may be given to it.

    A simulated profile's warning takes the first line, so its script has none that names the shell and is
    started as `sh FILE`.

    Raises:
        BadRequest: a value that no command line can hold.
    """
    shell = "" if profile.provenance == "simulated" else "#!/bin/sh\n"
    words = serve_words(profile)
    lines = " \\\n    ".join([*_grouped(words), '"$@"'])
    return f"{shell}{comment(profile)}{_for_shellcheck(words)}exec {lines}\n"


def _for_shellcheck(words: list[str]) -> str:
    """What a checker of shell scripts has to know: the shell, and that a dollar sign or a backslash within
    single quotes is meant as it stands.
    """
    meant = "SC1003,SC2016 " if any(character in word for word in words for character in "$`\\") else ""
    return f"# shellcheck shell=sh{' disable=' + meant if meant else ''}".rstrip() + "\n"


def _grouped(words: list[str]) -> list[str]:
    lines = [shlex.join(words[:3])]
    for word in words[3:]:
        if word.startswith("--"):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return lines
