"""The whole profile as JSON."""

from __future__ import annotations

import json

from tuner.profiles.codec import profile_to_json
from tuner.profiles.cost import cost_object
from tuner.profiles.exporters.common import head_lines, serve_words
from tuner.profiles.profile import Profile


def export(profile: Profile) -> str:
    """JSON; `about` on the first line says what it is, `argv` is the command as an argument list,
    `costs` what winner and default cost at a known price of the GPU."""
    about = json.dumps(head_lines(profile), ensure_ascii=False)
    values = {"argv": serve_words(profile), **profile_to_json(profile), "costs": cost_object(profile)}
    body = json.dumps(values, indent=2, ensure_ascii=False)
    return f'{{"about": {about},{body[1:]}\n'
