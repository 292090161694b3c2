"""A profile as plain values and back; whatever is missing or of another kind is named exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.errors import BadRequest
from tuner.profiles.profile import SCHEMA_VERSION, Measured, Profile, UsersRow
from tuner.space.config import LaunchConfig

RECOMMENDATIONS = ("tuned", "default")
PROVENANCES = ("measured", "simulated")

Reader = Callable[[Any, str], Any]


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """Every field, the schema version first."""
    return {
        "schema": profile.schema,
        "provenance": profile.provenance,
        "recommendation": profile.recommendation,
        "study": profile.study,
        "created": profile.created,
        "gpu": profile.gpu,
        "driver": profile.driver,
        "model": profile.model,
        "vllm_version": profile.vllm_version,
        "slo": dict(profile.slo),
        "trace": _plain(dict(profile.trace)),
        "window": list(profile.window),
        "start_rps": profile.start_rps,
        "requests": profile.requests,
        "seed": profile.seed,
        "gain": profile.gain,
        "winner": measured_to_json(profile.winner),
        "baseline": measured_to_json(profile.baseline),
        "users_table": [
            {
                "users": row.users,
                "default_mean_s": row.default_mean_s,
                "default_p99_s": row.default_p99_s,
                "tuned_mean_s": row.tuned_mean_s,
                "tuned_p99_s": row.tuned_p99_s,
            }
            for row in profile.users_table
        ],
    }


def measured_to_json(measured: Measured) -> dict[str, Any]:
    """Every field of a configuration's figures."""
    return {
        "flags": _plain(dict(measured.flags)),
        "command": list(measured.command),
        "throughput_rps": measured.throughput_rps,
        "output_tps": measured.output_tps,
        "p99_s": measured.p99_s,
        "p99_interval_s": list(measured.p99_interval_s),
        "mean_s": measured.mean_s,
        "users": measured.users,
        "kv_tokens": measured.kv_tokens,
        "startup_s": measured.startup_s,
        "effective": _plain(dict(measured.effective)),
        "note": measured.note,
    }


def profile_from_json(values: Any, where: str = "profile") -> Profile:
    """The profile in plain values.

    Raises:
        BadRequest: a field is missing, unknown or of another kind, or the schema is a later one.
    """
    table = _mapping(values, where)
    schema = _integer(table.get("schema"), f"{where}: schema")
    if schema > SCHEMA_VERSION:
        raise BadRequest(
            f"{where}: schema {schema} is newer than this kimi-tune knows ({SCHEMA_VERSION})",
            "upgrade kimi-tune",
        )
    if schema < 1:
        raise BadRequest(f"{where}: schema {schema} does not exist", f"write {SCHEMA_VERSION}")
    return Profile(**_read(table, _PROFILE, where))


def measured_from_json(values: Any, where: str = "measured") -> Measured:
    """A configuration's figures in plain values.

    Raises:
        BadRequest: a field is missing, unknown or of another kind.
    """
    return Measured(**_read(_mapping(values, where), _MEASURED, where))


def _read(table: Mapping[str, Any], readers: Mapping[str, Reader], where: str) -> dict[str, Any]:
    unknown = sorted(str(key) for key in table if key not in readers)
    if unknown:
        raise BadRequest(f"{where}: {unknown[0]} is not a field of it", "remove it")
    missing = [key for key in readers if key not in table]
    if missing:
        raise BadRequest(f"{where}: {missing[0]} is missing", "export the study's profile again")
    return {key: reader(table[key], f"{where}: {key}") for key, reader in readers.items()}


def _wrong(where: str, needed: str, value: Any) -> BadRequest:
    return BadRequest(f"{where}: {needed} is needed, not {value!r}", "mend the file")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a mapping", value)
    return value


def _integer(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(where, "a whole number", value)
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise _wrong(where, "a number", value)
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a text", value)
    return value


def _one_of(*allowed: str) -> Reader:
    def read(value: Any, where: str) -> str:
        if value not in allowed:
            raise _wrong(where, f"one of {', '.join(allowed)}", value)
        return str(value)

    return read


def _or_none(reader: Reader) -> Reader:
    return lambda value, where: None if value is None else reader(value, where)


def _tuple_of(reader: Reader, length: int | None = None) -> Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
            raise _wrong(where, f"a list{f' of {length}' if length else ''}", value)
        return tuple(reader(item, f"{where}[{i}]") for i, item in enumerate(value))

    return read


def _flag_value(value: Any, where: str) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_flag_value(item, where) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _wrong(where, "a flag's value", value)


def _flags(value: Any, where: str) -> LaunchConfig:
    return LaunchConfig.of(_effective(value, where))


def _effective(value: Any, where: str) -> dict[str, Any]:
    return {_text(k, where): _flag_value(v, f"{where}: {k}") for k, v in _mapping(value, where).items()}


def _limits(value: Any, where: str) -> dict[str, float]:
    return {_text(k, where): _number(v, f"{where}: {k}") for k, v in _mapping(value, where).items()}


def _any_mapping(value: Any, where: str) -> dict[str, Any]:
    return dict(_mapping(value, where))


def _users_row(value: Any, where: str) -> UsersRow:
    return UsersRow(**_read(_mapping(value, where), _USERS_ROW, where))


_USERS_ROW: dict[str, Reader] = {
    "users": _integer,
    "default_mean_s": _or_none(_number),
    "default_p99_s": _or_none(_number),
    "tuned_mean_s": _or_none(_number),
    "tuned_p99_s": _or_none(_number),
}
_MEASURED: dict[str, Reader] = {
    "flags": _flags,
    "command": _tuple_of(_text),
    "throughput_rps": _number,
    "output_tps": _number,
    "p99_s": _or_none(_number),
    "p99_interval_s": _tuple_of(_or_none(_number), 2),
    "mean_s": _or_none(_number),
    "users": _integer,
    "kv_tokens": _integer,
    "startup_s": _number,
    "effective": _effective,
    "note": _text,
}
_PROFILE: dict[str, Reader] = {
    "schema": _integer,
    "provenance": _one_of(*PROVENANCES),
    "recommendation": _one_of(*RECOMMENDATIONS),
    "study": _text,
    "created": _text,
    "gpu": _text,
    "driver": _or_none(_text),
    "model": _text,
    "vllm_version": _text,
    "slo": _limits,
    "trace": _any_mapping,
    "window": _tuple_of(_number, 2),
    "start_rps": _number,
    "requests": _integer,
    "seed": _integer,
    "gain": _or_none(_number),
    "winner": measured_from_json,
    "baseline": measured_from_json,
    "users_table": _tuple_of(_users_row),
}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
