"""vLLM versions compared by their release numbers ("0.32.0+cpu", "0.21.0rc1" and "v0.21" are fine)."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import InvalidVersion, Version

from tuner.errors import BadRequest


@lru_cache(maxsize=128)
def release(version: str) -> tuple[int, int, int]:
    """Major, minor and patch number of a version.

    Raises:
        BadRequest: not a version.
    """
    try:
        parts = Version(version.strip()).release
    except InvalidVersion:
        raise BadRequest(f"vLLM version {version!r} is not a version", "write it like 0.21.0") from None
    major, minor, patch = (*parts, 0, 0)[:3]
    return major, minor, patch


def at_least(version: str, floor: str) -> bool:
    """Whether `version` is `floor` or later."""
    return release(version) >= release(floor)
