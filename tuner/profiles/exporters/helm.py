"""Values for the Helm chart of vLLM's production stack (vllm-project/production-stack, helm/)."""

from __future__ import annotations

from typing import Any

from tuner.profiles.exporters.common import (
    PORT,
    PROBE_EVERY_S,
    TOKEN,
    comment,
    gpus,
    image,
    kubernetes_word,
    model_folder,
    name_of,
    offload_gib,
    serve_words,
    shm_gib,
    startup_tries,
)
from tuner.profiles.profile import Profile
from tuner.profiles.text import yaml_text

_CPUS_PER_CARD = 4
_MEMORY_GIB_PER_CARD = 16
_CACHING = "enable-prefix-caching"
_PARALLEL = "--tensor-parallel-size"
# the chart puts it behind the release's name and in front of its own, in 63 characters
_NAME_LIMIT = 32


def export(profile: Profile) -> str:
    """Values of one model. The chart adds host and port; the token of the hub is the key `token` of a secret
    `huggingface`, if there is one.

    As soon as there is a `vllmConfig`, the chart switches prefix caching off unless it is asked for, and it
    makes /dev/shm only with a `tensorParallelSize` (helm/templates/deployment-vllm-multi.yaml): both are
    said, all else are words of `extraArgs`, and without a `tensorParallelSize` /dev/shm is a volume of the
    model. Its pods ask for the runtime class `nvidia` unless told not to (helm/values.yaml), which a
    machine without GPUs does not have.
    """
    words = [kubernetes_word(word) for word in serve_words(profile)]
    repository, tag = image(profile)
    cards = gpus(profile)
    health = {"path": "/health", "port": PORT}
    model: dict[str, Any] = {
        "name": name_of(profile, _NAME_LIMIT),
        "repository": repository,
        "tag": tag,
        "modelURL": words[2],
        "replicaCount": 1,
        "requestCPU": _CPUS_PER_CARD * max(1, cards),
        "requestMemory": f"{round(_MEMORY_GIB_PER_CARD * max(1, cards) + offload_gib(profile))}Gi",
        "requestGPU": cards,
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": TOKEN}}],
    }
    if config := _vllm_config(profile, words[3:]):
        model["vllmConfig"] = config
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    shared = f"{shm_gib(profile)}Gi"
    if "tensorParallelSize" in config:
        model["shmSize"] = shared
    else:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - the container's shared memory
    if folder := model_folder(profile):
        volumes.append({"name": "model", "hostPath": {"path": folder, "type": "Directory"}})
        mounts.append({"name": "model", "mountPath": folder, "readOnly": True})
    if volumes:
        model |= {"extraVolumes": volumes, "extraVolumeMounts": mounts}
    engine: dict[str, Any] = {
        "containerPort": PORT,
        # two do not fit one GPU, so the old one goes first
        "strategy": {"type": "Recreate"},
        "startupProbe": {
            "initialDelaySeconds": PROBE_EVERY_S,
            "periodSeconds": PROBE_EVERY_S,
            "failureThreshold": startup_tries(profile),
            "httpGet": health,
        },
        "livenessProbe": {
            "initialDelaySeconds": PROBE_EVERY_S,
            "periodSeconds": PROBE_EVERY_S,
            "failureThreshold": 6,
            "httpGet": health,
        },
        "modelSpec": [model],
    }
    if not cards:
        engine["runtimeClassName"] = ""
    return comment(profile) + yaml_text({"servingEngineSpec": engine})


def _vllm_config(profile: Profile, words: list[str]) -> dict[str, Any]:
    """The flags, in the chart's own fields where it insists on them."""
    if not words:
        return {}
    config: dict[str, Any] = {}
    caching = profile.winner.flags.get(_CACHING, profile.winner.effective.get(_CACHING, True))
    config["enablePrefixCaching"] = caching is not False
    rest = [word for word in words if word not in (f"--{_CACHING}", f"--no-{_CACHING}")]
    at = rest.index(_PARALLEL) if _PARALLEL in rest else -1
    if at >= 0 and rest[at + 1].isdecimal():
        config["tensorParallelSize"] = int(rest[at + 1])
        del rest[at : at + 2]
    if rest:
        config["extraArgs"] = rest
    return config
