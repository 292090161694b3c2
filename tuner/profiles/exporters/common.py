"""What every export says: the model, the words of the command, and where the figures come from."""

from __future__ import annotations

import re

from tuner.errors import BadRequest
from tuner.profiles.files import SIMULATED
from tuner.profiles.profile import Profile
from tuner.space.argv import to_argv

PORT = 8000


def serve_words(profile: Profile) -> list[str]:
    """`vllm serve MODEL --flag value …` as an argument list.

    Raises:
        BadRequest: a flag that this vLLM does not take, or a value that no command line can hold.
    """
    words = ["vllm", "serve", profile.model, *to_argv(profile.winner.flags, profile.vllm_version)]
    for word in words:
        if "\0" in word:
            raise BadRequest(f"{word!r} holds a NUL character", "no command line can hold it")
    return words


def head_lines(profile: Profile) -> list[str]:
    """What the reader has to know, one line each and without line breaks; SIMULATED comes first."""
    lines = []
    if profile.provenance == "simulated":
        lines.append(f"{SIMULATED}: predicted, not measured on a GPU")
    winner = profile.winner
    limits = ", ".join(f"{name.replace('_', ' ')[:-2]} <= {value:g} s" for name, value in profile.slo.items())
    carried = f"{winner.throughput_rps:.3g} requests/s within {limits}"
    lines.append(f"kimi-tune study {profile.study}: {profile.model} on {profile.gpu}, {carried}")
    if profile.recommendation == "default":
        lines.append("Nothing tried carries more than vLLM's own defaults.")
    elif profile.gain is not None:
        lines.append(f"{profile.gain:.2f} times what vLLM's own defaults carry")
    lines.append(f"for vLLM {profile.vllm_version}; the optimum of another version may be another")
    return [one_line(line) for line in lines]


def one_line(text: str) -> str:
    """The text with line breaks and control characters as blanks, so that it stays a comment."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]+", " ", text)


def comment(profile: Profile) -> str:
    """The head as comment lines."""
    return "".join(f"# {line}\n" for line in head_lines(profile))


def name_of(profile: Profile, limit: int = 63) -> str:
    """The study's name as a DNS label (RFC 1123): lower-case letters, digits and dashes."""
    label = re.sub(r"[^a-z0-9]+", "-", profile.study.lower()).strip("-")
    return f"vllm-{label}"[:limit].strip("-")


def gpus(profile: Profile) -> int:
    """How many GPUs the launch uses; 0 on a CPU."""
    if profile.gpu == "cpu":
        return 0
    count = re.match(r"(\d+)x", profile.gpu)
    return int(count[1]) if count else 1


def image(profile: Profile) -> str:
    """The container image of the version that was tuned."""
    version = profile.vllm_version.partition("+")[0]
    return f"vllm/vllm-openai{'-cpu' if gpus(profile) == 0 else ''}:v{version}"


def patience_s(profile: Profile) -> int:
    """How long a start may take before it counts as failed: five times the measured one, with empty caches in
    mind, and ten minutes at the least for a download of the weights."""
    return max(600, round(5 * profile.winner.startup_s))
