"""Profiles of earlier schemas, brought to the present one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def _from_1(table: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 added the evidence of the finals, the machine, the traffic and the cost."""
    return {
        **table,
        "gain_interval": None,
        "ties": [],
        "flag_gains": [],
        "sensitivity": [],
        "brittle": "",
        "separate": None,
        "finals": [],
        "drift": None,
        "predictions": [],
        "by_cards": [],
        "machine": {},
        "traffic": {},
        "cost": None,
        "schema": 2,
    }


STEPS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MappingProxyType({1: _from_1})
"""What brings a profile of that schema to the next one."""


def migrated(table: Mapping[str, Any], schema: int) -> Mapping[str, Any]:
    """The table in the present schema; fields that a step adds replace none that are there."""
    while schema in STEPS:
        raised = STEPS[schema](dict(table))
        table, schema = {**raised, **table, "schema": raised["schema"]}, raised["schema"]
    return table
