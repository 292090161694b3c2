"""The finals: the best of the search and the default, on fresh launches, on traffic that the search did not
see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.study.baseline import Baseline
from tuner.study.budget import Costs
from tuner.study.exact import exact_finals
from tuner.study.finalist import choose_contenders, the_default
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.load import Offer
from tuner.study.rounds import rounds
from tuner.study.stage import Finals, Stage
from tuner.study.standing import MOST_MARGIN
from tuner.study.storage import StudyPlace
from tuner.study.trial import Bench

if TYPE_CHECKING:
    from optuna.study import Study

__all__ = ["Finals", "hold_finals"]


def hold_finals(
    job: Job,
    place: StudyPlace,
    study: Study,
    bench: Bench,
    offers: tuple[Offer, Offer],
    baseline: Baseline,
    costs: Costs,
) -> Finals:
    """Measure the best of the search and the default again; say which to deploy.

    `offers` are the search's loads and those of the held-out window.
    """
    history = History(study)
    searched, held_out = offers
    default = the_default(job, history, baseline, searched, held_out)
    if history.incumbent() is None:
        return Finals(default, None, held_out)
    contenders = choose_contenders(job, history, baseline, searched, held_out)
    if (plainly := getattr(job.engine, "plainly", None)) is not None:
        plainly()  # what is confirmed is what will be deployed, not a fork of a launcher
    exact = job.engine.deterministic
    offer = held_out if exact else held_out.up_to(math.exp(MOST_MARGIN))
    stage = Stage(job, place, study, bench, offer, total=len(contenders) + 1)
    if exact:
        return exact_finals(stage, baseline, contenders, default)
    return rounds(stage, costs, contenders, default)
