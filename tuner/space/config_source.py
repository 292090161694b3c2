"""Fields of vLLM's configuration classes, read from syntax trees: type, choices, default and bounds."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tuner.space.flag import Flag, FlagKind
from tuner.spec import FlagValue

_READABLE = "human_readable_int"
_WRAPPERS = frozenset({"Annotated", "SkipValidation", "Optional", "InitVar", "Required", "Final"})
_CONTAINERS = frozenset({"list", "List", "set", "Set", "tuple", "Tuple", "Sequence", "frozenset"})
_MAPPINGS = frozenset({"dict", "Dict", "Mapping"})
# engine/arg_utils.py names the integers that may be written 4k or 1M by field, in a set or in a comparison.
_READABLE_FIELDS = frozenset({"max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes"})


def literal(node: ast.expr, otherwise: Any) -> Any:
    """The value of a literal expression (lists become tuples), or `otherwise`."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return otherwise
    return tuple(value) if isinstance(value, list | tuple | set) else value


def with_type(flag: Flag, node: ast.expr) -> Flag:
    """The flag with the parser that `type=` names."""
    text = ast.unparse(node)
    if isinstance(node, ast.Lambda):
        return replace(flag, folded="lower()" in text)
    if "json.loads" in text or "union_dict_and_str" in text:
        return replace(flag, kind=FlagKind.JSON)
    if _READABLE in text:
        return replace(flag, kind=FlagKind.INT, readable=True, auto="_or_auto" in text)
    for kind in (FlagKind.INT, FlagKind.FLOAT, FlagKind.STR):
        if text in (kind.value, f"optional_type({kind.value})", f"parse_type({kind.value})"):
            return replace(flag, kind=kind, nullable=flag.nullable or "optional" in text)
    return flag


class ConfigSource:
    """The classes and type aliases of some modules, looked up by name in all of them."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.aliases: dict[str, ast.expr] = {}
        self.readable = set(_READABLE_FIELDS)
        for tree in trees:
            self._collect(tree.body)

    def _collect(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.ClassDef(name=name):
                    self.classes.setdefault(name, node)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._alias(name, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._alias(name, value)
                case ast.If(body=inner, orelse=other):
                    # Under TYPE_CHECKING stand the names that are not there at run time.
                    checking = "TYPE_CHECKING" in ast.unparse(node.test)
                    self._collect(other if checking else [*inner, *other])
                case ast.FunctionDef(name="_compute_kwargs" | "get_kwargs"):
                    self._readable_fields(node)

    def _alias(self, name: str, value: ast.expr) -> None:
        plain = isinstance(value, ast.Name) and value.id in ("Any", "object", "str")
        if not plain or name not in self.aliases:
            kept = self.aliases.get(name)
            if kept is None or isinstance(kept, ast.Name):
                self.aliases[name] = value

    def _readable_fields(self, function: ast.FunctionDef) -> None:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and "human_readable" in ast.unparse(node.targets[0]):
                self.readable |= {str(name) for name in literal(node.value, ())}

    def family(self, name: str) -> list[ast.ClassDef]:
        """A class and its bases, the class first."""
        node = self.classes.get(name)
        if node is None:
            return []
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != name]
        return [node, *(each for base in bases for each in self.family(base))]

    def fields(self, name: str) -> dict[str, Flag]:
        """The fields of a configuration class by their Python names, as flags that argparse would get."""
        found: dict[str, Flag] = {}
        for node in reversed(self.family(name)):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    field = line.target.id
                    if "ClassVar" not in ast.unparse(line.annotation):
                        found[field] = self._field(field, line.annotation, line.value, node)
        return found

    def choices(self, node: ast.expr) -> tuple[FlagValue, ...]:
        """The values of a literal list, or of `get_args(Alias)`; none where they are computed."""
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_args") and node.args:
            return _literals(self._hints(node.args[0]))
        found = literal(node, ())
        return found if isinstance(found, tuple) else ()

    def _field(self, name: str, annotation: ast.expr, value: ast.expr | None, owner: ast.ClassDef) -> Flag:
        hints = self._hints(annotation)
        flag = _flag_of(name, hints, name in self.readable)
        default, limits = self._default(value, owner)
        return replace(flag, default=default, **limits)

    def _hints(self, node: ast.expr, depth: int = 0) -> list[Any]:
        """What an annotation allows: type names, ("literal", values), ("list", hints), "class", "json"."""
        if depth > 12:
            return ["other"]
        match node:
            case ast.Constant(value=None):
                return ["None"]
            case ast.Constant(value=str(text)):
                try:
                    return self._hints(ast.parse(text, mode="eval").body, depth + 1)
                except SyntaxError:
                    return ["other"]
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return [*self._hints(left, depth + 1), *self._hints(right, depth + 1)]
            case ast.Subscript(value=head, slice=inner):
                return self._subscript(ast.unparse(head).rpartition(".")[2], inner, depth)
            case ast.Name(id=name):
                return self._name(name, depth)
        return ["other"]

    def _subscript(self, head: str, inner: ast.expr, depth: int) -> list[Any]:
        parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        if head == "Literal":
            values = [value for part in parts for value in self._literal_values(part)]
            return [("literal", tuple(values))]
        if head == "Union":
            return [hint for part in parts for hint in self._hints(part, depth + 1)]
        if head in _WRAPPERS:
            inner_hints = self._hints(parts[0], depth + 1)
            return [*inner_hints, "None"] if head == "Optional" else inner_hints
        if head in _CONTAINERS:
            return [("list", self._hints(parts[0], depth + 1))]
        return ["dict"] if head in _MAPPINGS else ["other"]

    def _literal_values(self, node: ast.expr) -> tuple[FlagValue, ...]:
        if isinstance(node, ast.Name) and node.id in self.aliases:
            return _literals(self._hints(self.aliases[node.id]))
        value = literal(node, None)
        return () if value is None else (value,)

    def _name(self, name: str, depth: int) -> list[Any]:
        if name in ("bool", "int", "float", "str"):
            return [name]
        if name in _MAPPINGS:
            return ["dict"]
        if name in _CONTAINERS:
            return [("list", ["str"])]
        if name in self.classes:
            bases = {ast.unparse(base) for base in self.classes[name].bases}
            enum = any("Enum" in base for base in bases) or bool(
                [k for k in self.classes[name].keywords if "Enum" in ast.unparse(k.value)]
            )
            return [("enum", self._members(name)) if enum else "class"]
        if name in self.aliases:
            return self._hints(self.aliases[name], depth + 1)
        return ["other"]

    def _members(self, name: str) -> tuple[FlagValue, ...]:
        return tuple(
            literal(line.value, None)
            for line in self.classes[name].body
            if isinstance(line, ast.Assign) and literal(line.value, None) is not None
        )

    def _default(self, node: ast.expr | None, owner: ast.ClassDef) -> tuple[FlagValue, dict[str, Any]]:
        match node:
            case None:
                return None, {}
            case ast.Call(func=ast.Name(id="Field" | "field"), args=args, keywords=keywords):
                named = {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
                first = named.get("default", args[0] if args else None)
                if first is None and isinstance(factory := named.get("default_factory"), ast.Lambda):
                    first = factory.body
                return self._default(first, owner)[0], _limits(named)
            case ast.Name(id=name):
                value = _class_value(owner, name)
                if value is None and name in self.aliases:
                    value = literal(self.aliases[name], None)
                return value, {}
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self.classes:
                return _class_value(self.classes[name], attr), {}
        value = literal(node, None)
        return (value if isinstance(value, bool | int | float | str | tuple) and value != () else None), {}


def _class_value(owner: ast.ClassDef, name: str) -> FlagValue:
    """The literal that a class sets under this name."""
    for line in owner.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        if isinstance(line, ast.Assign | ast.AnnAssign) and getattr(target, "id", None) == name:
            return literal(line.value, None) if line.value is not None else None
    return None


_LIMITS = (("ge", "low", False), ("gt", "low", True), ("le", "high", False), ("lt", "high", True))


def _limits(named: dict[str, ast.expr]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for key, side, strict in _LIMITS:
        value = literal(named[key], None) if key in named else None
        if isinstance(value, int | float):
            limits[side] = value
            if strict:
                limits[f"open_{side}"] = True
    return limits


def _literals(hints: Iterable[Any]) -> tuple[FlagValue, ...]:
    groups = (hint[1] for hint in hints if isinstance(hint, tuple) and hint[0] == "literal")
    return tuple(value for group in groups for value in group)


def _flag_of(name: str, hints: list[Any], readable: bool) -> Flag:
    """The kind that vLLM's `_compute_kwargs` gives a field with these hints, in its order."""
    nullable = "None" in hints
    kinds = {hint if isinstance(hint, str) else hint[0] for hint in hints} - {"None"}
    if "class" in kinds:
        return Flag(name, FlagKind.JSON, nullable=nullable)
    if kinds == {"bool", "str"} and nullable:
        return Flag(name, FlagKind.STR, nullable=True, bare=True)
    if "bool" in kinds:
        return Flag(name, FlagKind.BOOL, nullable=nullable)
    if "literal" in kinds:
        values = _literals(hints)
        kind = _kind_of(values[0] if values else "")
        return Flag(name, kind, choices=() if "str" in kinds else values, nullable=nullable)
    if "list" in kinds:
        return _list_flag(name, next(hint[1] for hint in hints if hint[0] == "list"), nullable)
    if "int" in kinds:
        auto = name == "max_model_len"
        return Flag(name, FlagKind.INT, nullable=nullable, readable=readable or auto, auto=auto)
    if "float" in kinds:
        return Flag(name, FlagKind.FLOAT, nullable=nullable)
    if "dict" in kinds:
        return Flag(name, FlagKind.JSON, nullable=nullable)
    return Flag(name, FlagKind.STR, nullable=nullable)


def _list_flag(name: str, inner: list[Any], nullable: bool) -> Flag:
    values = _literals(inner)
    if values:
        return Flag(name, _kind_of(values[0]), choices=values, listed=True, nullable=nullable)
    plain = [hint for hint in inner if hint in ("int", "float")]
    kind = FlagKind(plain[0]) if len(plain) == 1 and len(inner) == 1 else FlagKind.STR
    return Flag(name, kind, listed=True, nullable=nullable)


def _kind_of(value: FlagValue) -> FlagKind:
    if isinstance(value, int) and not isinstance(value, bool):
        return FlagKind.INT
    return FlagKind.FLOAT if isinstance(value, float) else FlagKind.STR
