"""One exporter a file; the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tuner.errors import BadRequest
from tuner.masking import mask
from tuner.profiles.exporters import compose, helm, json, kubernetes, shell, systemd, vllm
from tuner.profiles.profile import Profile
from tuner.profiles.secrets import without_secrets

Exporter = Callable[[Profile], str]
EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "vllm": vllm.export,
        "shell": shell.export,
        "compose": compose.export,
        "kubernetes": kubernetes.export,
        "systemd": systemd.export,
        "helm": helm.export,
        "json": json.export,
    }
)
"""Exporters by the name of their format."""


def formats() -> tuple[str, ...]:
    """The names of the formats."""
    return tuple(EXPORTERS)


def export(profile: Profile, format: str) -> str:
    """The profile's winner as a file of that format, without secrets.

    Raises:
        BadRequest: no such format, a value that the format cannot hold, or flags that were not launched.
    """
    if format not in EXPORTERS:
        raise BadRequest(f"format {format}: unknown", f"choose one of {', '.join(EXPORTERS)}")
    return mask(EXPORTERS[format](without_secrets(profile)))
