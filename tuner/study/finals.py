"""The finals: the best of the search and the default, on fresh launches, on traffic that the search did not
see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.study.accounts import spent_s
from tuner.study.baseline import Baseline
from tuner.study.budget import LEAST_REPLAYS_A_FINAL, Costs, budget_left_s
from tuner.study.exact import exact_finals
from tuner.study.finalist import Finalist, carried_over, choose_contenders, the_default
from tuner.study.history import History
from tuner.study.job import Job
from tuner.study.load import Offer
from tuner.study.rounds import rounds
from tuner.study.sensitivity import least_change
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
    best = history.incumbent()
    share = carried_over(job, best.config, searched, held_out) if best is not None else 1.0
    default = the_default(job, history, baseline, held_out, share)
    if best is None:
        return Finals(default, None, held_out)
    contenders = choose_contenders(job, history, baseline, held_out, share)
    if (plainly := getattr(job.engine, "plainly", None)) is not None:
        plainly()  # what is confirmed is what will be deployed, not a fork of a launcher
    exact = job.engine.deterministic
    offer = held_out if exact else held_out.up_to(math.exp(MOST_MARGIN))
    if not exact:
        contenders += _with_less(job, study, baseline, contenders, costs)
        if not _room_for_all(job, study, contenders, costs):
            contenders = contenders[:1]
    stage = Stage(job, place, study, bench, offer, total=len(contenders) + 1)
    if exact:
        return exact_finals(stage, baseline, contenders, default)
    return rounds(stage, costs, contenders, default)


def _room_for_all(job: Job, study: Study, contenders: list[Finalist], costs: Costs) -> bool:
    """Whether each contender can be launched within the budget, if only for a few replays."""
    needed_s = costs.finals_s(len(contenders) + 1, LEAST_REPLAYS_A_FINAL)
    return needed_s <= budget_left_s(job.spec.budget, spent_s(study))


def _with_less(
    job: Job, study: Study, baseline: Baseline, contenders: list[Finalist], costs: Costs
) -> list[Finalist]:
    """The best contender without the flags that are of no use by prediction: the finals will tell."""
    if job.predictor is None or not contenders:
        return []
    best = contenders[0]
    if costs.finals_s(len(contenders) + 2) > budget_left_s(job.spec.budget, spent_s(study)):
        return []
    config = baseline.least(least_change(job.predictor, best.config, best.changed))
    if config in (baseline.config, *(contender.config for contender in contenders)):
        return []
    label = "ABC"[len(contenders)]
    return [Finalist(label, config, best.start, baseline.flags_changed(config))]
