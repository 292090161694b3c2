"""Names of studies: readable, and the same for the same job."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.study.job import Job

_DIGEST_CHARS = 8


def slug(text: str) -> str:
    """Lower-case letters, digits, dots and dashes: safe in a path, a URL and a shell."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "study"


def study_name(job: Job) -> str:
    """The default name, such as "a100-80g-kimi-k2.6-awq-1a2b3c4d": GPU, model and a digest of the job."""
    from tuner.spec import digest

    model = Path(job.shape.name).name
    return f"{slug(job.gpu.label)}-{slug(model)[:40]}-{digest(job.identity())[:_DIGEST_CHARS]}"


def fresh_name(root: Path, name: str) -> str:
    """`name`, or `name-2`, `name-3`, … : the first that has no folder below `root`."""
    candidate, number = name, 1
    while (root / candidate).exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate
