"""The plan: what will be done, and how long it should take."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.space import quality_flags
from tuner.spec import LoadMode
from tuner.study.budget import MOST_FINAL_LAUNCHES, Costs, trials_within
from tuner.study.job import Job
from tuner.study.load import Offer, make_offer
from tuner.study.memory import recollect
from tuner.study.patience import patience_rule
from tuner.study.points import draw
from tuner.study.records import Plan
from tuner.study.sampler import available
from tuner.study.storage import StudyPlace
from tuner.study.windows import split

_SAMPLE = 256
_LENGTHS = 4
SAMPLERS = {"gp": "Gaussian process", "random": "at random", "tpe": "tree-structured Parzen estimator"}


def make_plan(job: Job, place: StudyPlace, *, sampler: str | None = None) -> Plan:
    """Plan a job; nothing is launched and nothing written.

    Raises:
        BadRequest: the trace cannot be used.
    """
    windows = split(job.trace, job.spec.load)
    offer = make_offer(windows.search, job.spec)
    superset = offer.test.loads.at(offer.test.loads.natural_rps)
    costs = Costs(job.engine.startup_estimate_s(), replay_estimate_s(job, offer))
    budget = job.spec.budget
    engine_s = costs.trials_s(budget.trials) + costs.finals_s()
    kind = sampler or job.options.sampler or available()
    return Plan(
        study=place.name,
        engine=job.engine.name,
        gpu=job.gpu.label,
        model=job.spec.model,
        vllm_version=job.engine.vllm_version,
        slo=job.spec.slo.to_json(),
        trace=str(job.spec.trace) if job.spec.trace else "the trace that ships",
        trace_notes=tuple(job.trace.source.notes),
        requests=len(superset),
        trace_rps=job.trace.rate_rps,
        replay_s=costs.replay_s,
        launch_s=costs.launch_s,
        trials=budget.trials,
        budget_s=budget.engine_s,
        budget_trials=trials_within(budget, costs),
        finals=MOST_FINAL_LAUNCHES,
        engine_s=min(engine_s, budget.engine_s) if budget.engine_s else engine_s,
        parameters=job.space.describe(),
        fixed=dict(job.space.fixed),
        feasible_share=feasible_share(job),
        coverage=coverage(job),
        sampler=SAMPLERS.get(kind, kind),
        notes=tuple(
            note for note in (windows.note, _quality(job), _beside(job), *_guided(job, place)) if note
        ),
    )


def replay_estimate_s(job: Job, offer: Offer) -> float:
    """Seconds that a replay should take: as many requests as it has, at the load that the defaults should
    carry, else at the trace's own rate."""
    loads = offer.test.loads
    rps = 0.0
    if job.predictor is not None and job.spec.load is LoadMode.RATE:
        rps = job.predictor.capacity_rps(job.space.baseline())
    return loads.at(rps if rps > 0.0 else loads.natural_rps).duration_s


def _beside(job: Job) -> str:
    """A line on trials beside each other."""
    if job.slots is None:
        return ""
    return f"{job.parallel} trials at a time on {job.slots.cards} cards; the default and the finals run alone"


def _guided(job: Job, place: StudyPlace) -> tuple[str, ...]:
    """Lines on the guide's patience and on what earlier studies found."""
    rule = ""
    if job.predictor is not None:
        rule = patience_rule(job.spec.budget.trials, exact=job.engine.deterministic)
    return (rule, recollect(job, place).line() if job.options.suggestions else "")


def _quality(job: Job) -> str:
    """A line that names what is searched or fixed and can change the answers."""
    flags = {name: True for name in job.space.distributions()} | dict(job.space.fixed)
    named = ", ".join(quality_flags(flags))
    return f"can change the answers' quality: {named}" if named else ""


def feasible_share(job: Job) -> float:
    """Share of the space that the rules allow, from a sample."""
    rng = np.random.default_rng(job.spec.seed)
    distributions = job.space.distributions()
    points: list[dict[str, Any]] = [draw(distributions, rng) for _ in range(_SAMPLE)]
    allowed = [p for p in points if job.rules.check(job.space.config(p)) is None]
    return len(allowed) / len(points)


def coverage(job: Job) -> dict[int, float]:
    """Share of the trace that fits each max-model-len of the space (a few lengths of a range)."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    fixed = job.space.fixed.get("max-model-len")
    distribution = job.space.distributions().get("max-model-len")
    lengths: list[int] = []
    if isinstance(distribution, CategoricalDistribution):
        lengths = [c for c in distribution.choices if isinstance(c, int) and not isinstance(c, bool)]
    elif isinstance(distribution, IntDistribution):
        lengths = [round(x) for x in np.geomspace(distribution.low, distribution.high, _LENGTHS)]
    elif isinstance(fixed, int):
        lengths = [fixed]
    return {length: job.trace.coverage(length) for length in sorted(set(lengths)) if length > 0}
