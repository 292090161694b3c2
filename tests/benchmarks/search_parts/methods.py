"""The searches that are compared. All run `tuner.study.tune` with the same rules, baseline, guard and finals;
they differ in what proposes the next configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from search_parts.autotune import AutoTune
from search_parts.problem import Problem
from tuner.engines.base import Engine
from tuner.space import effective_defaults
from tuner.spec import TuneSpec
from tuner.study import Job, Options
from tuner.study.sampler import MAKERS

MAKERS.setdefault("auto_tune.sh", AutoTune)


@dataclass(frozen=True, slots=True)
class Method:
    """A search by name; `sampler` None is the best one here, `guided` adds what the guide suggests."""

    name: str
    said: str
    sampler: str | None
    guided: bool = False
    needs: tuple[str, ...] = ()

    def missing(self) -> str:
        """The first package that it needs and that is not here."""
        return next((package for package in self.needs if find_spec(package) is None), "")

    def job(self, problem: Problem, engine: Engine, trials: int, seed: int) -> Job:
        """A tune job that searches this way."""
        spec = problem.spec(trials, seed)
        return Job(
            spec=spec,
            engine=engine,
            gpu=problem.gpu,
            shape=problem.shape,
            trace=problem.trace,
            space=problem.space,
            rules=problem.rules(),
            defaults=effective_defaults(problem.gpu, problem.shape, engine.vllm_version),
            predictor=_predictor(problem, spec) if self.guided else None,
            options=Options(fault_wait_s=0.0, sampler=self.sampler, suggestions=self.guided),
        )


def _predictor(problem: Problem, spec: TuneSpec) -> object:
    """The guide that the command line gives to a real engine."""
    from tuner.cli.setup import Place, predictor_of

    place = Place(problem.gpu, None, spec.vllm_version or "", launcher="plain")
    return predictor_of(place, problem.shape, spec, problem.trace)


METHODS = {
    method.name: method
    for method in (
        Method("random", "at random", "random"),
        Method("tpe", "Optuna's TPE, 5 start-up trials", "tpe"),
        Method("gp", "Optuna's GP without the guide", "gp", needs=("torch", "scipy")),
        Method("grid", "the grid of vLLM's auto_tune.sh", "auto_tune.sh"),
        Method("ours", "kimi-tune with its guide", None, guided=True),
    )
}
