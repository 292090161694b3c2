"""A Docker Compose file."""

from __future__ import annotations

from typing import Any

from tuner.profiles.exporters.common import (
    PORT,
    comment,
    gpus,
    image,
    model_folder,
    name_of,
    patience_s,
    serve_words,
    shm_gib,
)
from tuner.profiles.profile import Profile
from tuner.profiles.text import yaml_text


def export(profile: Profile) -> str:
    """One service. The hub's token is taken from the environment of whoever starts it, never written here."""
    words = [_literal(word) for word in serve_words(profile)]
    service: dict[str, Any] = {
        "image": ":".join(image(profile)),
        "entrypoint": words[:2],
        "command": words[2:],
        "ports": [f"{PORT}:{PORT}"],
        "environment": {"HF_TOKEN": "${HF_TOKEN:-}"},
        "volumes": [{"type": "volume", "source": "huggingface", "target": "/root/.cache/huggingface"}],
        "shm_size": f"{shm_gib(profile)}gb",
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _PROBE],
            "interval": "10s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{patience_s(profile)}s",
        },
    }
    if folder := model_folder(profile):
        path = _literal(folder)
        service["volumes"].append({"type": "bind", "source": path, "target": path, "read_only": True})
    if gpus(profile):
        device = {"driver": "nvidia", "count": gpus(profile), "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    file = {"services": {name_of(profile): service}, "volumes": {"huggingface": {}}}
    return comment(profile) + yaml_text(file)


_PROBE = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/health', timeout=4)"


def _literal(word: str) -> str:
    """The word past Compose's interpolation."""
    return word.replace("$", "$$")
