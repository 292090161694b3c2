"""A profile as plain values and back; whatever is missing or of another kind is named exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tuner.errors import BadRequest
from tuner.profiles import readers as read
from tuner.profiles.cost import GpuCost
from tuner.profiles.evidence import (
    CardsRow,
    Drift,
    FinalRow,
    FlagGain,
    PredictionRow,
    SeparateQueue,
    Shift,
    Tie,
)
from tuner.profiles.migrate import migrated
from tuner.profiles.profile import SCHEMA_VERSION, Measured, Profile, UsersRow
from tuner.profiles.readers import BadField, Reader, Where, or_none, record_of, tuple_of

RECOMMENDATIONS = ("tuned", "default")
PROVENANCES = ("measured", "simulated")


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """Every field, the schema version first."""
    return {name: _plain(getattr(profile, name)) for name in _PROFILE}


def measured_to_json(measured: Measured) -> dict[str, Any]:
    """Every field of a configuration's figures."""
    return {name: _plain(getattr(measured, name)) for name in _MEASURED}


def profile_from_json(values: Any, where: str = "profile") -> Profile:
    """The profile in plain values, of this schema or an earlier one.

    Raises:
        BadField: a field is missing, unknown or of another kind.
        BadRequest: the schema is a later one.
    """
    root = Where(where)
    table = read.mapping(values, root)
    if "schema" not in table:
        raise BadField(root, "schema is missing", "name a profile that kimi-tune wrote")
    schema = read.integer(table["schema"], root.at("schema"))
    if schema > SCHEMA_VERSION:
        raise BadRequest(
            f"{where}: schema {schema} is newer than this kimi-tune knows ({SCHEMA_VERSION})",
            "upgrade kimi-tune",
        )
    if schema < 1:
        raise BadField(root.at("schema"), f"schema {schema} does not exist", f"write {SCHEMA_VERSION}")
    return Profile(**read.record(migrated(table, schema), _PROFILE, root))


def measured_from_json(values: Any, where: str = "measured") -> Measured:
    """A configuration's figures in plain values.

    Raises:
        BadField: a field is missing, unknown or of another kind.
    """
    return Measured(**read.record(values, _MEASURED, Where(where)))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


_SECONDS = or_none(read.number)
_INTERVAL = tuple_of(_SECONDS, 2)
_MEASURED: dict[str, Reader] = {
    "flags": read.flags,
    "command": tuple_of(read.text),
    "throughput_rps": read.amount,
    "output_tps": read.amount,
    "p99_s": _SECONDS,
    "p99_interval_s": _INTERVAL,
    "mean_s": _SECONDS,
    "users": read.count,
    "kv_tokens": read.count,
    "startup_s": read.amount,
    "effective": read.flag_values,
    "note": read.text,
}
_USERS_ROW: dict[str, Reader] = {
    "users": read.count,
    "default_mean_s": _SECONDS,
    "default_p99_s": _SECONDS,
    "tuned_mean_s": _SECONDS,
    "tuned_p99_s": _SECONDS,
}
_TIE: dict[str, Reader] = {
    "flags": read.flags,
    "throughput_rps": read.amount,
    "changed": tuple_of(read.text),
}
_FLAG_GAIN: dict[str, Reader] = {
    "flag": read.text,
    "value": read.flag_value,
    "gain": read.number,
    "source": read.text,
}
_SHIFT: dict[str, Reader] = {
    "name": read.text,
    "default_rps": read.amount,
    "tuned_rps": read.amount,
    "source": read.text,
}
_SEPARATE: dict[str, Reader] = {
    "split_tokens": read.count,
    "long_share": read.amount,
    "together_rps": read.amount,
    "short_rps": read.amount,
    "long_rps": read.amount,
}
_FINAL_ROW: dict[str, Reader] = {
    "label": read.text,
    "launch": read.count,
    "load_rps": read.amount,
    "p99_s": _SECONDS,
    "interval_s": _INTERVAL,
    "verdict": read.text,
    "plain": read.truth,
}
_DRIFT: dict[str, Reader] = {
    "loads_rps": tuple_of(read.amount),
    "relative": read.number,
    "limit": read.amount,
}
_PREDICTION: dict[str, Reader] = {
    "label": read.text,
    "predicted_rps": read.amount,
    "measured_rps": read.amount,
    "launches_before": read.count,
}
_CARDS: dict[str, Reader] = {
    "cards": read.count,
    "trials": read.count,
    "throughput_rps": read.amount,
    "per_card_rps": read.amount,
    "flags": read.flags,
}
_COST: dict[str, Reader] = {
    "amount": read.amount,
    "currency": read.text,
    "per_s": read.amount,
    "text": read.text,
}
_PROFILE: dict[str, Reader] = {
    "schema": read.integer,
    "provenance": read.one_of(*PROVENANCES),
    "recommendation": read.one_of(*RECOMMENDATIONS),
    "study": read.text,
    "created": read.text,
    "gpu": read.text,
    "driver": or_none(read.text),
    "model": read.model,
    "vllm_version": read.version,
    "slo": read.limits,
    "trace": read.plain_mapping,
    "window": tuple_of(read.amount, 2),
    "start_rps": read.amount,
    "requests": read.count,
    "seed": read.integer,
    "gain": or_none(read.amount),
    "gain_interval": or_none(tuple_of(read.number, 2)),
    "winner": record_of(Measured, _MEASURED),
    "baseline": record_of(Measured, _MEASURED),
    "users_table": tuple_of(record_of(UsersRow, _USERS_ROW)),
    "ties": tuple_of(record_of(Tie, _TIE)),
    "flag_gains": tuple_of(record_of(FlagGain, _FLAG_GAIN)),
    "sensitivity": tuple_of(record_of(Shift, _SHIFT)),
    "brittle": read.text,
    "separate": or_none(record_of(SeparateQueue, _SEPARATE)),
    "finals": tuple_of(record_of(FinalRow, _FINAL_ROW)),
    "drift": or_none(record_of(Drift, _DRIFT)),
    "predictions": tuple_of(record_of(PredictionRow, _PREDICTION)),
    "by_cards": tuple_of(record_of(CardsRow, _CARDS)),
    "machine": read.plain_mapping,
    "traffic": read.plain_mapping,
    "cost": or_none(record_of(GpuCost, _COST)),
}
