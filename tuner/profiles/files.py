"""Profile files: YAML, a schema version in front."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import BadRequest
from tuner.profiles.codec import profile_from_json, profile_to_json
from tuner.profiles.profile import Profile
from tuner.profiles.readers import BadField
from tuner.profiles.text import yaml_text
from tuner.space.yaml_file import Entry, parse_yaml

SIMULATED = "SIMULATED"
MAX_BYTES = 1_000_000


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile; the file is whole or not there.

    Raises:
        BadRequest: it cannot be written.
    """
    text = yaml_text(profile_to_json(profile))
    if profile.provenance == "simulated":
        text = f"# {SIMULATED}: predicted, not measured on a GPU\n{text}"
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise BadRequest(f"{path}: cannot be written ({error.strerror})", "name another file") from error


def load_profile(path: Path) -> Profile:
    """Read a profile file, of this schema or an earlier one.

    Raises:
        BadRequest: not there, over 1 MB, not YAML, or not a profile: file, line and field are named.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadRequest(f"{path}: cannot be read ({reason})", "name a profile file") from error
    if len(data) > MAX_BYTES:
        raise BadRequest(f"{path}: larger than a profile can be", "name a profile file")
    root = parse_yaml(data, str(path), finite=False)
    try:
        return profile_from_json(root.plain(), str(path))
    except BadField as error:
        line = _line(root, error.where.path)
        if line is None:
            raise
        what = error.what.removeprefix(str(path))
        raise BadRequest(f"{path}:{line}{what}", error.mend) from None


def _line(entry: Entry, path: tuple[str | int, ...]) -> int | None:
    """The line of the deepest part of `path` that the file holds; None for the file as a whole."""
    line = None
    for step in path:
        inner = entry.value
        if isinstance(inner, dict) and step in inner:
            entry = inner[str(step)]
        elif isinstance(inner, list) and isinstance(step, int) and step < len(inner):
            entry = inner[step]
        else:
            break
        line = entry.line
    return line
