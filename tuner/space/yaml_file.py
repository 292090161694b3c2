"""YAML read with limits and with the line of every entry, so that errors can say where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tuner.errors import BadRequest

MAX_BYTES = 1_000_000
MAX_NODES = 20_000
MAX_DEPTH = 30
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True)
class Entry:
    """A value with its place. `value` is a plain scalar, a list of entries, or a dict of entries by text."""

    value: Any
    file: str
    line: int

    def error(self, what: str, mend: str = "") -> BadRequest:
        """A BadRequest that begins with file and line."""
        return BadRequest(f"{self.file}:{self.line}: {what}", mend)

    def plain(self) -> Any:
        """The value without places: scalars, lists, dicts."""
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        return self.value


def read_yaml(path: Path) -> Entry:
    """The one document of a YAML file; an empty one is an empty mapping.

    Raises:
        BadRequest: unreadable, over 1 MB, not YAML, keys that repeat or are not text, values that are no
            plain scalars, endless or exploding aliases.
    """
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadRequest(f"{name}: cannot be read: {reason}", "give a YAML file") from None
    if len(data) > MAX_BYTES:
        raise BadRequest(f"{name}: larger than {MAX_BYTES // 1_000_000} MB", "a search space is a few lines")
    return parse_yaml(data, name)


def parse_yaml(data: bytes | str, name: str, *, finite: bool = True) -> Entry:
    """The one document of a YAML text; `name` stands for the file in errors. `finite` refuses infinity and
    NaN.

    Raises:
        BadRequest: as `read_yaml`.
    """
    try:
        loader = _Loader(data)
        try:
            root = loader.get_single_node()
            if root is None:
                return Entry({}, name, 1)
            return _Converter(loader, name, finite).entry(root, 0)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = error.problem or error.context
        raise BadRequest(f"{name}:{line}: not YAML: {reason}", "mend that line") from None
    except (yaml.YAMLError, UnicodeError) as error:
        reason = str(error).splitlines()[0]
        raise BadRequest(f"{name}: not YAML: {reason}", "give a YAML file in UTF-8") from None


class _Loader(yaml.SafeLoader):
    """Stops at the limits while it builds nodes."""

    depth = count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        self.count += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=self.get_mark())
        if self.count > MAX_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_NODES} entries", problem_mark=self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Converter:
    """Nodes to entries. Aliases are followed, each time counted, so that they cannot explode."""

    def __init__(self, loader: yaml.SafeLoader, name: str, finite: bool) -> None:
        self.loader = loader
        self.name = name
        self.finite = finite
        self.count = 0

    def entry(self, node: yaml.Node, depth: int) -> Entry:
        line = node.start_mark.line + 1
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            what = "aliases or nesting blow this file up" if depth > MAX_DEPTH else "too many entries"
            raise BadRequest(f"{self.name}:{line}: {what}", "write the values out")
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            raise BadRequest(f"{self.name}:{line}: {node.tag} is not a plain value", "leave the tag out")
        if isinstance(node, yaml.MappingNode):
            return Entry(self._mapping(node, depth), self.name, line)
        if isinstance(node, yaml.SequenceNode):
            return Entry([self.entry(child, depth + 1) for child in node.value], self.name, line)
        return Entry(self._scalar(node, line), self.name, line)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag == "tag:yaml.org,2002:merge":
                raise BadRequest(f"{self.name}:{line}: a key has to be a word", "write `name: value`")
            if key in found:
                raise BadRequest(
                    f"{self.name}:{line}: {key!r} stands twice, first in line {found[key].line}", "keep one"
                )
            value = self.entry(value_node, depth + 1)
            # The key's line is what a reader looks for, not where its block begins.
            found[key] = Entry(value.value, self.name, line)
        return found

    def _scalar(self, node: yaml.Node, line: int) -> Any:
        try:
            value = self.loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, OverflowError, KeyError, TypeError, IndexError, AttributeError):
            value = node
        if self.finite and isinstance(value, float) and not math.isfinite(value):
            raise BadRequest(f"{self.name}:{line}: {node.value} is not a number to launch with", "give one")
        if value is not None and not isinstance(value, bool | int | float | str):
            text = str(node.value)[:40]
            what = f"{self.name}:{line}: {text!r} is not a plain value"
            raise BadRequest(what, "put it in quotation marks")
        return value
