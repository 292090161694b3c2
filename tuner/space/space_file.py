"""Space files: `extends:` followed, `parameters:` and `fixed:` merged, names checked against vLLM's flags."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import BadRequest
from tuner.space.flags import RESERVED, FlagTable
from tuner.space.shipped import shipped_spaces
from tuner.space.yaml_file import Entry, read_yaml

_KEYS = ("extends", "parameters", "fixed", "description")
_MAX_EXTENDS = 8


@dataclass(slots=True)
class SpaceFile:
    """A space as written: entries by canonical flag name; an extending file's come in place of the others."""

    source: str
    parameters: dict[str, Entry] = field(default_factory=dict)
    fixed: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_space_file(path: Path, table: FlagTable) -> SpaceFile:
    """Read a space file and all that it extends.

    Raises:
        BadRequest: file, line, key, and what is wrong with it.
    """
    return _read(_resolved(path), table, ())


def _resolved(path: Path) -> Path:
    """The file itself, or the shipped space that a bare name stands for."""
    if path.is_file():
        return path
    shipped = shipped_spaces()
    if len(path.parts) == 1 and path.name.removesuffix(".yaml") in shipped:
        return shipped[path.name.removesuffix(".yaml")]
    if path.exists():
        raise BadRequest(f"{path}: not a file", "give a YAML file")
    raise BadRequest(f"{path}: there is no such space file", _suggestion(path.stem))


def _suggestion(name: str) -> str:
    shipped = shipped_spaces()
    close = difflib.get_close_matches(name, shipped, n=1)
    return f"did you mean {close[0]!r}?" if close else f"give a YAML file, or one of {', '.join(shipped)}"


def _read(path: Path, table: FlagTable, above: tuple[Path, ...]) -> SpaceFile:
    root = read_yaml(path)
    top = _mapping(root, "a space file")
    for key, entry in top.items():
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            at_home = table.get(key.replace("_", "-")) is not None
            known = f"known keys: {', '.join(_KEYS)}"
            mend = "put flags under `parameters:` or `fixed:`" if at_home else known
            raise entry.error(f"unknown key {key!r}", f"did you mean {close[0]!r}?" if close else mend)
    space = _extended(path, top.get("extends"), table, (*above, path.resolve()))
    space.source = f"search_spaces/{path.name}" if path in shipped_spaces().values() else str(path)
    own_parameters = _named(top.get("parameters"), "parameters", table, space.notes)
    own_fixed = _named(top.get("fixed"), "fixed", table, space.notes)
    for name, entry in own_fixed.items():
        if name in own_parameters:
            raise entry.error(f"{name!r} is both fixed and a parameter", "keep one of them")
    for name, entry in own_parameters.items():
        space.fixed.pop(name, None)
        space.parameters.pop(name, None)
        if entry.value is not None:
            space.parameters[name] = entry
    for name, entry in own_fixed.items():
        space.parameters.pop(name, None)
        space.fixed[name] = entry
    return space


def _extended(path: Path, entry: Entry | None, table: FlagTable, chain: tuple[Path, ...]) -> SpaceFile:
    if entry is None or entry.value is None:
        return SpaceFile(str(path))
    if not isinstance(entry.value, str):
        raise entry.error("extends: takes one name or path", "write `extends: default`")
    target = shipped_spaces().get(entry.value)
    for beside in (path.parent / entry.value, path.parent / f"{entry.value}.yaml"):
        target = target or (beside if beside.is_file() else None)
    if target is None:
        raise entry.error(f"extends: there is no space {entry.value!r}", _suggestion(entry.value))
    if target.resolve() in chain:
        loop = " -> ".join(each.name for each in (*chain, target))
        raise entry.error(f"extends: goes round in a circle ({loop})", "let one of them stand alone")
    if len(chain) > _MAX_EXTENDS:
        raise entry.error("extends: too many files behind each other", f"at most {_MAX_EXTENDS}")
    return _read(target, table, chain)


def _mapping(entry: Entry, what: str) -> dict[str, Entry]:
    if not isinstance(entry.value, dict):
        raise entry.error(f"{what} has to be a mapping", "write `name: value` lines")
    return entry.value


def _named(entry: Entry | None, what: str, table: FlagTable, notes: list[str]) -> dict[str, Entry]:
    """The entries by canonical flag name; names that vLLM does not know are refused."""
    if entry is None or entry.value is None:
        return {}
    found: dict[str, Entry] = {}
    for written, child in _mapping(entry, f"{what}:").items():
        name = canonical_name(written, table)
        if name != written:
            notes.append(f"{child.file}:{child.line}: {written!r} is read as {name!r}")
        problem = table.unknown(name) or _reserved(name)
        if problem is not None:
            raise child.error(f"{what}: {problem.what}", problem.mend)
        if name in found:
            raise child.error(f"{name!r} stands twice, first in line {found[name].line}", "keep one")
        found[name] = child
    return found


def _reserved(name: str) -> BadRequest | None:
    why = RESERVED.get(name)
    return BadRequest(f"flag {name!r} cannot be set here: {why}", "leave it out") if why else None


def canonical_name(written: str, table: FlagTable) -> str:
    """vLLM's own name for a flag written with underscores, with dashes in front, or by a long alias."""
    plain = written.strip().removeprefix("--")
    base, dot, rest = plain.partition(".")
    for name in (base, base.replace("_", "-")):
        flag = table.get(name)
        if flag is not None:
            return flag.name + dot + rest
    dashed = base.replace("_", "-")
    return (dashed if table.unknown(dashed) is None else base) + dot + rest


def canonical_flags(flags: Mapping[str, object], table: FlagTable, what: str) -> dict[str, object]:
    """Flags given outside a file, by canonical name.

    Raises:
        BadRequest: a name that vLLM does not know, or one flag under two names.
    """
    found: dict[str, object] = {}
    for written, value in flags.items():
        name = canonical_name(written, table)
        problem = table.problem(name, value) or _reserved(name)
        if problem is not None:
            raise BadRequest(f"{what}: {problem.what}", problem.mend)
        if name in found:
            raise BadRequest(f"{what}: {name!r} is given twice", "give it once")
        found[name] = value
    return found
