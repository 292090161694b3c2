"""What passes between the tuner and a slot's process, and how failures travel."""

from __future__ import annotations

import copyreg
from types import MappingProxyType
from typing import Any

from tuner.errors import BadRequest, EngineUnavailable, Infeasible, TuneError

_ERRORS: dict[str, type[TuneError]] = {
    kind.__name__: kind for kind in (BadRequest, EngineUnavailable, Infeasible)
}


def proxied(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A read-only view, made anew on the other side."""
    return MappingProxyType(mapping)


copyreg.pickle(MappingProxyType, lambda proxy: (proxied, (dict(proxy),)))  # a GPU's figures are in one


def error_to_json(error: BaseException) -> dict[str, Any]:
    """An error that is no failure of a launch."""
    if isinstance(error, TuneError):
        return {"type": type(error).__name__, "what": error.what, "mend": error.mend}
    return {"type": "", "what": f"{type(error).__name__}: {error}", "mend": ""}


def error_from_json(values: dict[str, Any]) -> TuneError:
    """The error that `error_to_json` wrote; one of another kind as EngineUnavailable."""
    return _ERRORS.get(values["type"], EngineUnavailable)(values["what"], values["mend"])
