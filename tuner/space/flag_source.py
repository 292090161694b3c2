"""Reads what a vLLM accepts out of its source text, without importing it.

vLLM makes its options from the fields of the classes in config/*.py (engine/arg_utils.py: `get_kwargs`), and
registers them in `EngineArgs.add_cli_args`, `AsyncEngineArgs.add_cli_args`, `FrontendArgs.add_cli_args` and
`make_arg_parser`. The same walk is made here over syntax trees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.space.config_source import ConfigSource, literal, with_type
from tuner.space.flag import Flag, FlagKind

Fields = dict[str, Flag]


def read_flags(package_dir: Path) -> dict[str, Flag]:
    """The flags of the `vllm` package in this folder, by name without the dashes.

    Raises:
        OSError: a file is missing.
        ValueError: the files hold no vLLM options (SyntaxError for text that is not Python).
    """
    trees = {path: ast.parse(path.read_bytes(), str(path)) for path in _files(package_dir)}
    reader = _Reader(ConfigSource(trees.values()))
    for path, tree in trees.items():
        reader.read_module(path, tree)
    if not reader.flags:
        raise ValueError(f"no options in {package_dir}")
    return dict(sorted(reader.flags.items()))


def _files(package_dir: Path) -> list[Path]:
    config = package_dir / "config"
    configs = sorted(config.glob("**/*.py")) if config.is_dir() else [package_dir / "config.py"]
    frontends = [
        path
        for path in sorted((package_dir / "entrypoints").glob("*/cli_args.py"))
        if b"class FrontendArgs" in path.read_bytes()
    ]
    return [*configs, package_dir / "engine" / "arg_utils.py", *frontends]


class _Reader:
    """Walks the functions that register options, in order, with the few kinds of statement they use."""

    def __init__(self, source: ConfigSource) -> None:
        self.source = source
        self.flags: dict[str, Flag] = {}

    def read_module(self, path: Path, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == "make_arg_parser":
                self._run(node.body, {})
            elif isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs"):
                for function in node.body:
                    if isinstance(function, ast.FunctionDef) and function.name == "add_cli_args":
                        self._run(function.body, {})
            elif isinstance(node, ast.ClassDef) and node.name == "FrontendArgs":
                self._frontend(node)

    def _frontend(self, node: ast.ClassDef) -> None:
        """Every field of FrontendArgs and its bases is an option, after some corrections made by key."""
        fields = self.source.fields(node.name)
        scope: dict[str, Any] = {"frontend_kwargs": fields}
        for class_node in reversed(self.source.family(node.name)):
            for function in class_node.body:
                if isinstance(function, ast.FunctionDef):
                    self._run(function.body, scope)
        for name, flag in fields.items():
            dashed = name.replace("_", "-")
            self.flags[dashed] = replace(flag, name=dashed)

    def _run(self, body: Iterable[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, value, scope)
                case ast.AugAssign(target=ast.Subscript() as target):
                    # A list of choices that grows by computed names: any word has to pass.
                    self._amend(target, lambda flag: replace(flag, choices=()), scope)
                case ast.Delete(targets=targets):
                    for target in targets:
                        self._amend(target, lambda flag: replace(flag, listed=False), scope)
                case ast.Expr(value=ast.Call() as call):
                    self._call(call, scope)
                case ast.If(body=inner, orelse=other):
                    self._run(inner, scope)
                    self._run(other, scope)
                case ast.With(body=inner) | ast.Try(body=inner):
                    self._run(inner, scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            found = self._value(value, scope)
            if found is not None and target.id not in ("frontend_kwargs", "parser"):
                scope[target.id] = found
            if isinstance(value, ast.Call):
                self._call(value, scope)
        elif isinstance(target, ast.Subscript):
            key = _key(target.slice)
            self._amend(target, lambda flag: self._amended(flag, {key: value}), scope)

    def _value(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        """The fields of a class, or one of them, where the expression names that."""
        match node:
            case ast.Name(id=name):
                return scope.get(name)
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                return self.source.fields(name)
            case ast.Subscript(value=inner, slice=key):
                fields = self._value(inner, scope)
                return _Field(fields, _key(key)) if isinstance(fields, dict) else None
        return None

    def _amend(self, target: ast.expr, change: Any, scope: Mapping[str, Any]) -> None:
        """Apply a change to the field that `kwargs["field"]["key"]` or `field_kwargs["key"]` is a part of."""
        if isinstance(target, ast.Subscript):
            found = self._value(target.value, scope)
            if isinstance(found, _Field) and found.flag is not None:
                found.fields[found.name] = change(found.flag)

    def _call(self, call: ast.Call, scope: Mapping[str, Any]) -> None:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
            return
        names = [word for arg in call.args if isinstance(word := literal(arg, None), str)]
        long = [name[2:] for name in names if name.startswith("--")]
        if not long:
            return
        base, changes = self._keywords(call.keywords, scope)
        flag = self._amended(base or Flag(long[0], FlagKind.STR), changes)
        aliases = (*long[1:], *(name for name in names if not name.startswith("--")))
        self.flags[long[0]] = replace(flag, name=long[0], aliases=aliases)

    def _keywords(
        self, keywords: Iterable[ast.keyword], scope: Mapping[str, Any]
    ) -> tuple[Flag | None, dict[str, ast.expr]]:
        base: Flag | None = None
        changes: dict[str, ast.expr] = {}
        for keyword in keywords:
            if keyword.arg is not None:
                changes[keyword.arg] = keyword.value
            elif isinstance(keyword.value, ast.Dict):
                for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                    if key is not None:
                        changes[_key(key)] = value
                    elif isinstance(found := self._value(value, scope), _Field):
                        base = found.flag
            elif isinstance(found := self._value(keyword.value, scope), _Field):
                base = found.flag
        return base, changes

    def _amended(self, flag: Flag, changes: Mapping[str, ast.expr]) -> Flag:
        """The flag with argparse's own keywords over it."""
        for key, value in changes.items():
            if key == "action":
                flag = self._with_action(flag, ast.unparse(value))
            elif key == "type":
                flag = with_type(flag, value)
            elif key == "default":
                flag = replace(flag, default=literal(value, None))
            elif key == "choices":
                flag = replace(flag, choices=self.source.choices(value))
            elif key == "nargs":
                flag = replace(flag, listed=literal(value, None) in ("+", "*"))
        return flag

    @staticmethod
    def _with_action(flag: Flag, action: str) -> Flag:
        if "BooleanOptionalAction" in action:
            return replace(flag, kind=FlagKind.BOOL)
        if "store_true" in action or "store_false" in action:
            return replace(flag, kind=FlagKind.BOOL, negatable=False, default=False)
        if "append" in action:
            return replace(flag, listed=False, repeated=True)
        return flag


class _Field:
    """A field of a class, to be read or replaced where the walk stands."""

    def __init__(self, fields: Fields, name: str) -> None:
        self.fields = fields
        self.name = name

    @property
    def flag(self) -> Flag | None:
        return self.fields.get(self.name)


def _key(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
