"""One exporter a file; the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tuner.errors import BadRequest
from tuner.profiles.exporters import compose, json, kubernetes, shell, systemd, vllm
from tuner.profiles.profile import Profile

Exporter = Callable[[Profile], str]
EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "vllm": vllm.export,
        "shell": shell.export,
        "compose": compose.export,
        "kubernetes": kubernetes.export,
        "systemd": systemd.export,
        "json": json.export,
    }
)
"""Exporters by the name of their format."""


def formats() -> tuple[str, ...]:
    """The names of the formats."""
    return tuple(EXPORTERS)


def export(profile: Profile, format: str) -> str:
    """The profile's winner as a file of that format.

    Raises:
        BadRequest: no such format, or a value that the format cannot hold.
    """
    if format not in EXPORTERS:
        raise BadRequest(f"format {format}: unknown", f"choose one of {', '.join(EXPORTERS)}")
    return EXPORTERS[format](profile)
