"""Flags of installed vLLMs in the user's cache folder, so that the sources are parsed once a version."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from tuner.space.flag import Flag
from tuner.spec import digest

_FORMAT = 1


def load_cached(package_dir: Path, version: str) -> dict[str, Flag] | None:
    """The flags kept for this package as it is now; None where there are none or they cannot be read."""
    try:
        kept = json.loads(_path(package_dir, version).read_text(encoding="utf-8"))
        if kept["stamp"] != _stamp(package_dir, version):
            return None
        return {name: Flag.from_json(name, short) for name, short in kept["flags"].items()} or None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def store_cached(package_dir: Path, version: str, flags: Mapping[str, Flag]) -> None:
    """Keep the flags; a folder that cannot be written is no error."""
    target = _path(package_dir, version)
    kept = {
        "stamp": _stamp(package_dir, version),
        "flags": {name: flag.to_json() for name, flag in flags.items()},
    }
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(kept, file)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _path(package_dir: Path, version: str) -> Path:
    safe = "".join(c if c.isalnum() or c in ".+-" else "_" for c in version)
    return user_cache_path("kimi-tune") / "flags" / f"vllm-{safe}-{digest(str(package_dir.resolve()))}.json"


def _stamp(package_dir: Path, version: str) -> list[object]:
    """Changes when vLLM is installed again or edited in place."""
    status = (package_dir / "engine" / "arg_utils.py").stat()
    return [_FORMAT, version, status.st_size, status.st_mtime_ns]
