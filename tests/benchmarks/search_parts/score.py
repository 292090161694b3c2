"""One study of one method on one problem, and what its export is worth in truth."""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from search_parts.best import best_of
from search_parts.engine import TrueEngine
from search_parts.longrun import LongRun
from search_parts.methods import Method
from search_parts.problem import Problem
from search_parts.truth import Scale
from tuner.engines.base import Outcome
from tuner.space import LaunchConfig
from tuner.study import StudyPlace, TrialRecord, TuneResult, tune


@dataclass(frozen=True, slots=True)
class Score:
    """One study. `regret` is 1 - true capacity / best of the 2,000 points; 1 where the export breaks the SLO
    at its load, or where nothing was exported. `share_of_slo` is the P99 of the export's long run over the
    limit, above 1 where it is `broken`. `foreseeable` crashes are those that arithmetic refuses, those of
    vLLM's own defaults aside.
    """

    problem: int
    method: str
    launches: int
    seed: int
    regret: float
    broken: bool
    export_rps: float
    true_rps: float
    best_rps: float
    used: int
    finals: int
    crashes: int
    foreseeable: int
    engine_s: float
    wall_s: float
    share_of_slo: float = 0.0
    flags: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Watcher:
    """Counts the finals and the crashes; whatever else a study tells is not wanted."""

    def __init__(self) -> None:
        self.finals = 0
        self.crashed: list[TrialRecord] = []
        self.records: list[TrialRecord] = []

    def trial_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        self.records.append(record)
        if record.outcome is Outcome.CRASH:
            self.crashed.append(record)

    def final_started(self, label: str, config: LaunchConfig, index: int, total: int) -> None:
        self.finals += 1

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@cache
def scale_of(problem: Problem) -> Scale:
    """The scale of a problem, kept: what was weighed once is known."""
    return Scale(problem)


@cache
def long_run_of(problem: Problem) -> LongRun:
    """The long run of a problem, its traffic made once."""
    return LongRun(problem)


@dataclass(frozen=True, slots=True)
class Worth:
    """What an export is worth in truth."""

    true_rps: float
    share_of_slo: float
    broken: bool
    regret: float


def worth(problem: Problem, config: LaunchConfig, load_rps: float) -> Worth:
    """A configuration exported with a load.

    Its capacity is weighed as that of the 2,000 points was, on the same draw: that draw favours the best of
    them, if anything. Whether its load breaks the SLO is told by the long run.
    """
    true_rps = scale_of(problem).capacity(config)
    share = long_run_of(problem).share_of_slo(config, load_rps)
    broken = share > 1.0
    return Worth(true_rps, share, broken, 1.0 if broken else 1.0 - true_rps / best_of(problem).rps)


def run(problem: Problem, method: Method, launches: int, seed: int) -> Score:
    """Search with so many launches, the baseline's included, then finals, then the truth about the export."""
    noise = zlib.crc32(f"{problem.number} {method.name} {launches} {seed}".encode())
    engine = TrueEngine(problem.truth, noise)
    job = method.job(problem, engine, launches, seed)
    watcher = _Watcher()
    begun = time.perf_counter()
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        result = tune(job, StudyPlace("search", Path(folder)), watcher)
    wall_s = time.perf_counter() - begun
    return _score(problem, method, launches, seed, engine, watcher, result, wall_s)


def _score(
    problem: Problem,
    method: Method,
    launches: int,
    seed: int,
    engine: TrueEngine,
    watcher: _Watcher,
    result: TuneResult,
    wall_s: float,
) -> Score:
    exported, load, flags = Worth(0.0, 0.0, broken=False, regret=1.0), 0.0, {}
    if result.winner is not None and result.winner.throughput_rps > 0.0:
        load, flags = result.winner.throughput_rps, dict(result.winner.flags)
        exported = worth(problem, result.winner.flags, load)
    rules = problem.rules()
    foreseeable = [r for r in watcher.crashed if r.number != 0 and rules.check(r.config) is not None]
    return Score(
        problem=problem.number,
        method=method.name,
        launches=launches,
        seed=seed,
        regret=exported.regret,
        broken=exported.broken,
        export_rps=load,
        true_rps=exported.true_rps,
        best_rps=best_of(problem).rps,
        used=engine.launches - watcher.finals,
        finals=watcher.finals,
        crashes=len(watcher.crashed),
        foreseeable=len(foreseeable),
        engine_s=result.engine_seconds,
        wall_s=wall_s,
        share_of_slo=exported.share_of_slo,
        flags=flags,
    )
