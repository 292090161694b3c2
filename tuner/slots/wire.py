"""What passes between the tuner and a slot's process, and how failures travel."""

from __future__ import annotations

import copyreg
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.engines.base import Bound, FailureKind, LaunchFailure
from tuner.errors import BadRequest, EngineUnavailable, Infeasible, TuneError

_ERRORS: dict[str, type[TuneError]] = {
    kind.__name__: kind for kind in (BadRequest, EngineUnavailable, Infeasible)
}


def proxied(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A read-only view, made anew on the other side."""
    return MappingProxyType(mapping)


copyreg.pickle(MappingProxyType, lambda proxy: (proxied, (dict(proxy),)))  # a GPU's figures are in one


def failure_to_json(failure: LaunchFailure) -> dict[str, Any]:
    """A failure as plain values."""
    return {
        "kind": failure.kind.value,
        "cause": failure.cause,
        "mend": failure.mend,
        "bounds": [[bound.flag, bound.min, bound.max] for bound in failure.bounds],
        "log": str(failure.log) if failure.log else None,
        "seconds": failure.seconds,
    }


def failure_from_json(values: dict[str, Any]) -> LaunchFailure:
    """The failure that `failure_to_json` wrote."""
    return LaunchFailure(
        FailureKind(values["kind"]),
        values["cause"],
        mend=values["mend"],
        bounds=tuple(Bound(*bound) for bound in values["bounds"]),
        log=Path(values["log"]) if values["log"] else None,
        seconds=values["seconds"],
    )


def error_to_json(error: BaseException) -> dict[str, Any]:
    """An error that is no failure of a launch."""
    if isinstance(error, TuneError):
        return {"type": type(error).__name__, "what": error.what, "mend": error.mend}
    return {"type": "", "what": f"{type(error).__name__}: {error}", "mend": ""}


def error_from_json(values: dict[str, Any]) -> TuneError:
    """The error that `error_to_json` wrote; one of another kind as EngineUnavailable."""
    return _ERRORS.get(values["type"], EngineUnavailable)(values["what"], values["mend"])
