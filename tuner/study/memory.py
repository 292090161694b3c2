"""What earlier studies in the same folder found: winners to try first, or at least to think of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.errors import TuneError
from tuner.profiles import Profile, load_profile
from tuner.study.baseline import Baseline
from tuner.study.job import Job
from tuner.study.storage import StudyPlace

MOST = 2
"""Winners that are launched first, newest first; more would cost the search its launches."""
MOST_HINTS = 6


@dataclass(frozen=True, slots=True)
class Memory:
    """Winners for the same GPU and model: of the same vLLM version, and of others."""

    same: tuple[Profile, ...] = ()
    others: tuple[Profile, ...] = ()

    def line(self) -> str:
        """What the plan says of it."""
        said = []
        if self.same:
            names = ", ".join(profile.study for profile in self.same)
            said.append(f"first what won before with this vLLM version: {names}")
        if self.others:
            versions = ", ".join(sorted({profile.vllm_version for profile in self.others}))
            said.append(f"winners with vLLM {versions} are simulated, not launched unless they look best")
        return "; ".join(said)


def recollect(job: Job, place: StudyPlace) -> Memory:
    """Read the profiles of the studies beside this one; what cannot be read is passed over."""
    provenance = "simulated" if job.engine.name == "sim" else "measured"
    model = job.shape.path or job.spec.model
    found: list[Profile] = []
    for path in sorted(place.root.glob("*/profile.yaml")):
        if path.parent.name == place.name:
            continue
        try:
            profile = load_profile(path)
        except (TuneError, OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        same_place = profile.gpu == job.gpu.label and profile.model == model
        if same_place and profile.provenance == provenance and profile.recommendation == "tuned":
            found.append(profile)
    found.sort(key=lambda profile: (profile.created, profile.study), reverse=True)
    same = [p for p in found if p.vllm_version == job.engine.vllm_version]
    others = [p for p in found if p.vllm_version != job.engine.vllm_version]
    return Memory(tuple(same[:MOST]), tuple(others[:MOST_HINTS]))


def points_of(profiles: tuple[Profile, ...], job: Job, baseline: Baseline) -> list[dict[str, Any]]:
    """Their winners as points of the space, what the rules refuse and what comes twice left out."""
    points: list[dict[str, Any]] = []
    keys = {baseline.space.config(baseline.params).key()}
    distributions = baseline.space.distributions()
    for profile in profiles:
        point = baseline.space.params_of({**baseline.effective, **profile.winner.flags})
        if set(point) != set(distributions):
            continue
        config = baseline.space.config(point)
        if config.key() not in keys and job.rules.check(config) is None:
            keys.add(config.key())
            points.append(point)
    return points
