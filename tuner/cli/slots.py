"""`--parallel`: how many trials run beside each other, and where."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tuner.cli.setup import AUTO, Place, engine_at
from tuner.engines.base import Engine
from tuner.errors import BadRequest
from tuner.hardware import Gpu, Platform
from tuner.models import ModelShape
from tuner.slots import Pool, cards_here, shares_of
from tuner.space import LaunchConfig, gpus_needed
from tuner.spec import FlagValue
from tuner.study import cards_of


class Executor(StrEnum):
    """Where trials run."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class Where:
    """Where trials run; `shared`: workers of other hosts may help."""

    executor: Executor = Executor.LOCAL
    ray_address: str | None = None
    shared: bool = False


_HERE = Where()


def parse_parallel(text: str) -> int | None:
    """A number of trials at a time; None for auto.

    Raises:
        BadRequest: neither.
    """
    if text == AUTO:
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadRequest(f"--parallel {text}: not a number of trials", "write auto, or a number such as 4")
    return int(text)


def space_gpu(gpu: Gpu, shape: ModelShape, version: str, parallel: int | None) -> Gpu:
    """The GPUs that one trial takes where nothing says how many: as few as hold the model."""
    if parallel == 1:
        return gpu
    return replace(gpu, count=min(gpus_needed(gpu, shape, version) or gpu.count, gpu.count))


def make_slots(
    place: Place,
    shape: ModelShape,
    model: str,
    like: Engine,
    baseline: Mapping[str, FlagValue],
    parallel: int | None,
    seed: int = 0,
    *,
    where: Where = _HERE,
) -> tuple[Pool | None, int]:
    """The slots that were asked for and how many trials run at a time.

    For one at a time there are none, but where workers of other hosts help: this process has to
    answer them while a trial runs.

    A simulated GPU, and a CPU, count as many cards as there are trials.

    Raises:
        BadRequest: more than there are cards.
    """
    if where.executor is Executor.RAY:
        return _on_ray(place, shape, model, like, baseline, parallel, seed, where)
    each = cards_of(LaunchConfig.of(baseline))
    cards = place.gpu.count
    if parallel is not None and (place.launcher is None or place.gpu.platform is Platform.CPU):
        cards = max(cards, parallel * each)
    size = parallel if parallel is not None else cards // each
    if size * each > cards:
        raise BadRequest(
            f"--parallel {size}: {size} trials of {each} GPUs each need more than {place.gpu.label}",
            f"write --parallel {cards // each}, or more GPUs, such as --gpu {size * each}x{place.gpu.name}",
        )
    if size < 2 and not where.shared:
        return None, 1
    real = place.launcher is not None
    here = (
        cards_here(place.gpu, cards) if real else cards_here(replace(place.gpu, platform=Platform.CPU), cards)
    )
    factory = functools.partial(engine_at, place, shape, model, seed)
    return Pool.of_processes(shares_of(here), like, factory, place.gpu.platform), size


def _on_ray(
    place: Place,
    shape: ModelShape,
    model: str,
    like: Engine,
    baseline: Mapping[str, FlagValue],
    parallel: int | None,
    seed: int,
    where: Where,
) -> tuple[Pool, int]:
    from tuner.slots.rays import ray_pool

    factory = functools.partial(engine_at, place, shape, model, seed)
    gpu = place.gpu if place.launcher is not None and place.gpu.platform is Platform.CUDA else None
    pool = ray_pool(where.ray_address, factory, like, gpu, parallel)
    most = pool.cards // cards_of(LaunchConfig.of(baseline))
    return pool, max(1, min(parallel or most, most))
