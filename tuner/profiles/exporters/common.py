"""What every export says: the model, the words of the command, and where the figures come from."""

from __future__ import annotations

import re
from math import ceil
from pathlib import PurePosixPath

from tuner.errors import BadRequest
from tuner.profiles.cost import cost_lines
from tuner.profiles.files import SIMULATED
from tuner.profiles.profile import Profile
from tuner.space.argv import rendered, to_argv

PORT = 8000
TOKEN = {"name": "huggingface", "key": "token", "optional": True}
"""Where Kubernetes finds the hub's token, if anywhere: never written into an export."""
PROBE_EVERY_S = 10


def serve_words(profile: Profile) -> list[str]:
    """`vllm serve MODEL --flag value …` as an argument list: the words that the finals launched.

    Raises:
        BadRequest: a flag that this vLLM does not take, a value that no command line can hold, or flags that
            are not those of the profile's command.
    """
    words = ["vllm", "serve", profile.model, *_flag_words(profile)]
    for word in words:
        if "\0" in word:
            raise BadRequest(f"{word!r} holds a NUL character", "no command line can hold it")
    return words


def _flag_words(profile: Profile) -> list[str]:
    """The launched words behind the model. An installed vLLM may write a flag in another way than the tables
    that ship, so those words are kept, but only where they say what the profile's flags say.
    """
    winner = profile.winner
    written = to_argv(winner.flags, profile.vllm_version)
    launched = list(winner.command[3:]) if winner.command[:2] == ("vllm", "serve") else written
    if launched == written:
        return written
    named = {
        word.partition("=")[0].removeprefix("--").removeprefix("no-") for word in launched if word[:2] == "--"
    }
    flags = rendered(winner.flags, profile.vllm_version)
    strangers = named - {flag.removeprefix("no-") for flag in flags}
    changed = [
        flag
        for flag, value in flags.items()
        if value is not False and not set(to_argv({flag: value}, profile.vllm_version)) <= set(launched)
    ]
    if strangers or changed:
        flag = sorted(strangers or changed)[0]
        raise BadRequest(
            f"profile of {profile.study}: {flag} is not the same in winner.flags and in winner.command",
            "mend the one that is wrong, or tune again: only what was launched is proven",
        )
    return launched


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
    lines += [text for text in (profile.brittle and f"brittle: {profile.brittle}", winner.note) if text]
    lines += cost_lines(profile)
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
    """How many GPUs the launch takes; 0 on a CPU."""
    return 0 if profile.gpu == "cpu" else profile.winner.cards


def offload_gib(profile: Profile) -> float:
    """Host memory for KV blocks, in GiB."""
    for flag in ("kv-offloading-size", "swap-space"):
        size = profile.winner.flags.get(flag)
        if isinstance(size, int | float):
            return float(size)
    return 0.0


def shm_gib(profile: Profile) -> int:
    """Room for /dev/shm, used only as far as it is needed: 2 GiB for one server, 4 for each card of several,
    which NCCL and vLLM's queues between the ranks share, and the KV blocks that go to host memory, which vLLM
    keeps there (vllm/v1/kv_offload/cpu/shared_offload_region.py)."""
    cards = max(1, gpus(profile))
    return (2 if cards == 1 else 4 * cards) + ceil(offload_gib(profile))


def model_folder(profile: Profile) -> str | None:
    """The folder that a container has to see, at the same place, for a model that is a path. The hub's cache
    keeps a snapshot as links into a folder beside it, so there it is the folder of both.
    """
    path = PurePosixPath(profile.model)
    if not path.is_absolute():
        return None
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return str(path.parent.parent)
    return profile.model


def image(profile: Profile) -> tuple[str, str]:
    """Repository and tag of the container image of the version that was tuned."""
    version = profile.vllm_version.partition("+")[0]
    return f"vllm/vllm-openai{'-cpu' if gpus(profile) == 0 else ''}", f"v{version}"


def patience_s(profile: Profile) -> int:
    """How long a start may take before it counts as failed: five times the measured one, with empty caches in
    mind, and ten minutes at the least for a download of the weights."""
    return max(600, round(5 * profile.winner.startup_s))


def startup_tries(profile: Profile) -> int:
    """How many probes, PROBE_EVERY_S apart, make up that patience."""
    return -(-patience_s(profile) // PROBE_EVERY_S)


def kubernetes_word(word: str) -> str:
    """The word past Kubernetes's `$(NAME)`: two dollar signs stand for one."""
    return word.replace("$", "$$")
