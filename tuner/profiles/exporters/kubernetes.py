"""A Kubernetes Deployment and its Service."""

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
    serve_words,
    shm_gib,
    startup_tries,
)
from tuner.profiles.profile import Profile
from tuner.profiles.text import yaml_text


def export(profile: Profile) -> str:
    """Two documents. The token of the hub is the key `token` of a secret `huggingface`, if there is one."""
    name = name_of(profile)
    labels = {"app.kubernetes.io/name": name}
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib(profile)}Gi"}},
        {"name": "cache", "emptyDir": {}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's shared memory
        {"name": "cache", "mountPath": "/root/.cache"},
    ]
    if folder := model_folder(profile):
        volumes.append({"name": "model", "hostPath": {"path": folder, "type": "Directory"}})
        mounts.append({"name": "model", "mountPath": folder, "readOnly": True})
    container = _container(profile)
    container["volumeMounts"] = mounts
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 60}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            # two do not fit one GPU, so the old one goes first
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }
    return comment(profile) + yaml_text(deployment, service)


def _container(profile: Profile) -> dict[str, Any]:
    words = [kubernetes_word(word) for word in serve_words(profile)]
    health = {"path": "/health", "port": "http"}
    container: dict[str, Any] = {
        "name": "vllm",
        "image": ":".join(image(profile)),
        "command": words[:2],
        "args": words[2:],
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": TOKEN}}],
        "startupProbe": {
            "httpGet": health,
            "periodSeconds": PROBE_EVERY_S,
            "failureThreshold": startup_tries(profile),
        },
        "readinessProbe": {"httpGet": health, "periodSeconds": 5},
        "livenessProbe": {
            "httpGet": health,
            "periodSeconds": PROBE_EVERY_S,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
    }
    if gpus(profile):
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus(profile)}}
    return container
