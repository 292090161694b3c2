"""YAML text that every reader gives back as it was."""

from __future__ import annotations

import re
from typing import Any

import yaml

_FRAGILE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
# what another reader than PyYAML takes for a number ("1e3", "0o17") or a truth ("y")
_MISREAD = re.compile(r"[-+]?\.?[0-9]|[ynYN]$")


class _Dumper(yaml.SafeDumper):
    """Writes texts with line breaks and control characters in double quotes, where all of them are escaped:
    in the other styles PyYAML folds some away."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = '"' if _FRAGILE.search(value) else "'" if _MISREAD.match(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(*documents: Any) -> str:
    """One or several YAML documents of plain values, keys in their order."""
    return yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
        explicit_start=len(documents) > 1,
    )
