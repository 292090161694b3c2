"""Profile files: YAML, a schema version in front."""

from __future__ import annotations

from pathlib import Path

import yaml

from tuner.errors import BadRequest
from tuner.profiles.codec import profile_from_json, profile_to_json
from tuner.profiles.profile import Profile
from tuner.profiles.text import yaml_text

SIMULATED = "SIMULATED"


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
    """Read a profile file.

    Raises:
        BadRequest: not there, not YAML, or not a profile: file and field are named.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read ({error.strerror})", "name a profile file") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path}: not text", "name a profile file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise BadRequest(f"{path}{line}: not YAML", "name a profile file") from error
    return profile_from_json(values, str(path))
