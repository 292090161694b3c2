"""A study on the simulated engine, and a worker of another host, for processes that will be hurt."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import victim  # this file, by the name that a slot's process can import
from rich.console import Console

from tuner.cli.faults import told_plainly
from tuner.cli.interrupt import interruptible
from tuner.cli.setup import engine_at, find_place
from tuner.cli.tune import make_job
from tuner.engines.base import Engine
from tuner.errors import Exit, TuneError
from tuner.hardware import Platform
from tuner.models import find_model
from tuner.report.console import watching
from tuner.slots import Card, PacedEngine, Pool, shares_of
from tuner.spec import Budget, EngineChoice, Slo, TuneSpec
from tuner.study import Job, StudyPlace, heart, join_study, tune, work

GPU, MODEL = "A100-80G", "kimi-k2.6-awq"
SPACE = """
parameters:
  max-num-seqs: [16, 64, 256]
  max-num-batched-tokens: [2048, 8192]
"""
TRIALS = 6
SCALE = 0.0002
LOST_S = 6.0
"""A silent worker is given up sooner than in earnest."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a study runs: trials at a time, and the storage that hosts share (None: SQLite in its folder)."""

    folder: Path
    slots: int
    storage: str | None = None

    @property
    def place(self) -> StudyPlace:
        """The study's place; studies of one storage have names of their own."""
        return StudyPlace(f"chaos-{self.folder.name}", self.folder / "studies", self.storage)


def paced() -> Engine:
    """The simulator, slowly enough that a fault finds it at work."""
    place = find_place(GPU, EngineChoice.SIM)
    return PacedEngine(engine_at(place, find_model(MODEL), MODEL), SCALE)


def run_tuner(setting: Setting) -> None:
    """Run or resume the study; its result goes to `result.json` in its folder."""
    with interruptible(), watching(Console(quiet=True), quiet=True) as observer:
        result = tune(_job(setting), setting.place, observer)
    winner = result.winner
    said = {
        "recommendation": result.recommendation,
        "flags": dict(winner.flags) if winner else None,
        "rps": winner.throughput_rps if winner else None,
        "trials": dict(result.trials),
        "launches": result.launches,
    }
    (setting.folder / "result.json").write_text(json.dumps(said))


def run_worker(setting: Setting) -> None:
    """Measure for the study until it has ended."""
    setting = replace(setting, slots=1)
    with interruptible(), watching(Console(quiet=True), quiet=True) as observer:
        work(_job(setting), replace(setting.place, root=setting.folder / "worker"),
             join_study(setting.place), observer, idle_s=90.0)  # fmt: skip


def plainly(job: Callable[[Setting], None], setting: Setting) -> int:
    """Run one of them as the command line does: the exit code, every error in one line on stderr."""
    try:
        job(setting)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        known = error if isinstance(error, TuneError) else told_plainly(error)
        if known is None:
            raise
        print(f"kimi-tune: {known}", file=sys.stderr, flush=True)
        return known.exit_code
    return Exit.OK


def _job(setting: Setting) -> Job:
    heart.LOST_S = LOST_S
    space = setting.folder / "space.yaml"
    space.write_text(SPACE)
    spec = TuneSpec(
        gpu=GPU,
        slo=Slo(e2e_p99_s=12.0),
        model=MODEL,
        engine=EngineChoice.SIM,
        space=space,
        requests=60,
        budget=Budget(TRIALS),
    )
    job, _ = make_job(spec)
    job = replace(job, predictor=None, engine=victim.paced())
    if setting.slots == 1:
        return job
    pool = Pool.of_processes(
        shares_of([Card("")] * setting.slots, cores=[]),
        job.engine,
        functools.partial(victim.paced),
        Platform.CPU,
    )
    return replace(job, slots=pool, parallel=setting.slots)
