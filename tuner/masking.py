"""Secrets never leave: keys, tokens and passwords are masked in whatever is shown, stored or exported."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path

MASK = "***"
SECRET_FLAGS = frozenset({"api-key", "hf-token", "ssl-keyfile-password"})
"""Flags of vLLM whose value is a secret. None of them changes how much a server carries."""
_SECRET_NAME = re.compile(r"TOKEN|API_?KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 8
_PATTERNS = (
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}"), MASK),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"\b(Bearer|Basic)\s{1,9}[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # a slash may stand in a password, but host:80/path is none
    (re.compile(r"(://[^\s:/@]{0,100}):(?!\d{1,5}/)[^\s@]{1,200}@"), rf"\1:{MASK}@"),
    (
        re.compile(r"([?&](?:[\w-]{0,30}passw(?:or)?d|passphrase|token)=)[^\s&#'\"]+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            r"(--?(?:api[-_]key|hf[-_]token|[\w-]{0,30}passw(?:or)?d)(?:\s{1,9}|=))[^\s'\"]+", re.IGNORECASE
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            r"((?:api[-_]?key|hf[-_]token|passw(?:or)?d)['\"]?\s{0,9}[:=]\s{0,9})(['\"])(?!\*)[^'\"\n]{1,400}\2",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}\2",
    ),
)


def mask(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without secrets: the values of variables that are named like secrets, the hub's and OpenAI's
    tokens, bearer headers, passwords in URLs, values of secret options. Linear in the text's length.
    """
    for value in secret_values(environment):
        text = text.replace(value, MASK)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def mask_file(path: Path) -> bool:
    """Mask the environment's secrets in a file, which keeps its length: whether there were any.

    Raises:
        OSError: it cannot be read or written.
    """
    values = [value.encode() for value in secret_values()]
    if not values or not path.stat().st_size:
        return False
    found = False
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as text:
        for value in values:
            at = text.find(value)
            while at >= 0:
                text[at : at + len(value)] = b"*" * len(value)
                found = True
                at = text.find(value, at + len(value))
    return found


def secret_values(environment: Mapping[str, str] | None = None) -> list[str]:
    """The values of the environment's secrets, longest first; ones of under 8 characters are no secrets."""
    named = os.environ if environment is None else environment
    found = {v for name, v in named.items() if _SECRET_NAME.search(name) and len(v) >= _SHORTEST}
    return sorted(found - {"true", "false"}, key=len, reverse=True)
