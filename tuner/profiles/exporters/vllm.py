"""A file for `vllm serve --config FILE`."""

from __future__ import annotations

from typing import Any

import yaml

from tuner.profiles.exporters.common import comment, serve_words
from tuner.profiles.profile import Profile
from tuner.profiles.text import yaml_text


def export(profile: Profile) -> str:
    """YAML that vLLM turns into exactly the words of the command.

    vLLM up to 0.27 drops a false without a word, so a flag is switched off as `no-FLAG: true`, which every
    version turns into `--no-FLAG` (vllm/utils/argparse_utils.py, load_config_file).
    """
    _, _, model, *words = serve_words(profile)
    entries: dict[str, Any] = {"model": model}
    for option, values in _options(words):
        key = option.removeprefix("--")
        if key in entries:
            # an option that is given several times: each on a line of its own
            entries[f"{key}={values[0]}"] = True
        elif not values:
            entries[key] = True
        else:
            scalars = [_scalar(value) for value in values]
            entries[key] = scalars[0] if len(scalars) == 1 else scalars
    return comment(profile) + yaml_text(entries)


def _options(words: list[str]) -> list[tuple[str, list[str]]]:
    options: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            options.append((word, []))
        else:
            options[-1][1].append(word)
    return options


def _scalar(word: str) -> int | float | str:
    """The word as a number where vLLM, which takes `str` of what YAML holds, gets the same word back."""
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if str(number) == word and str(yaml.safe_load(yaml.safe_dump(number))) == word:
            return number
    return word
