"""Which sampler proposes configurations, and why a resumed study goes on as if it had never stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tuner.errors import BadRequest

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study

STARTUP_TRIALS = 5


def available() -> str:
    """`gp` where torch and scipy can be imported, else `tpe`."""
    return "gp" if find_spec("torch") and find_spec("scipy") else "tpe"


def recorded_sampler(study: Study, wanted: str | None = None) -> str:
    """The study's sampler, chosen (`wanted`, else the best available) and recorded when it is new.

    Raises:
        BadRequest: the study used a Gaussian process, and what that needs is missing here.
    """
    kind = study.user_attrs.get("sampler")
    if kind is None:
        kind = wanted or available()
        study.set_user_attr("sampler", kind)
    elif kind == "gp" and available() != "gp":
        raise BadRequest(
            f"study {study.study_name}: it was sampled by a Gaussian process, which needs torch and scipy",
            "pip install torch scipy, or start afresh with --new",
        )
    return str(kind)


def make_sampler(kind: str, seed: int, told: int) -> BaseSampler:
    """A sampler for the next ask.

    It is made anew for every ask and seeded by how many trials have been told: what it proposes then depends
    on the study's history only, whether or not the process was interrupted on the way.
    """
    # one thread: the matrices are small; has to be set before torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return MAKERS[kind]((seed * 1_000_003 + told * 7_919) % 2**31)


def _gp(seed: int) -> BaseSampler:
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False)


def _tpe(seed: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    # multivariate, constant liar and constraints are Optuna 5's own defaults
    return TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)


def _random(seed: int) -> BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


MAKERS: dict[str, Callable[[int], BaseSampler]] = {"gp": _gp, "random": _random, "tpe": _tpe}
"""Samplers by name; whoever compares searches may add their own."""
