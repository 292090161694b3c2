"""A systemd unit."""

from __future__ import annotations

import re

from tuner.profiles.exporters.common import comment, one_line, patience_s, serve_words
from tuner.profiles.profile import Profile


def export(profile: Profile) -> str:
    """A service unit; the hub's token may stand in /etc/default/vllm, never here."""
    words = " \\\n    ".join(_grouped(["/usr/bin/env", *serve_words(profile)]))
    about = one_line(f"vLLM serving {profile.model}").replace("%", "%%").rstrip("\\ ")
    return f"""{comment(profile)}[Unit]
Description={about}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
EnvironmentFile=-/etc/default/vllm
ExecStart={words}
Restart=on-failure
RestartSec=5
TimeoutStartSec={patience_s(profile)}
TimeoutStopSec=60
KillMode=mixed

[Install]
WantedBy=multi-user.target
"""


def _grouped(words: list[str]) -> list[str]:
    lines = [" ".join(quoted(word) for word in words[:4])]
    for word in words[4:]:
        if word.startswith("--"):
            lines.append(quoted(word))
        else:
            lines[-1] += " " + quoted(word)
    return lines


def quoted(word: str) -> str:
    """A word as ExecStart= reads it: quotes, C escapes, `%%` and `$$` for one each (systemd.service(5))."""
    word = word.replace("%", "%%").replace("$", "$$")
    if word and re.fullmatch(r"[\w@%$+=:,./-]+", word, re.ASCII):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(_escaped(character) for character in escaped) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if 0x20 <= code < 0x7F:
        return character
    if code < 0x7F:
        return f"\\x{code:02x}"
    return f"\\U{code:08x}"
