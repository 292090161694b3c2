"""One study on the simulated engine, in a process that will be hurt: FOLDER SLOTS -> its result as JSON."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path

from tuner.cli.interrupt import interruptible
from tuner.cli.setup import engine_at, find_place
from tuner.cli.tune import make_job
from tuner.engines.base import Engine
from tuner.hardware import Platform
from tuner.models import find_model
from tuner.report.console import watching
from tuner.slots import Card, PacedEngine, Pool, shares_of
from tuner.spec import Budget, EngineChoice, Slo, TuneSpec
from tuner.study import StudyPlace, tune

GPU, MODEL = "A100-80G", "kimi-k2.6-awq"
SPACE = """
parameters:
  max-num-seqs: [16, 64, 256]
  max-num-batched-tokens: [2048, 8192]
"""
TRIALS = 6
SCALE = 0.0002


def paced() -> Engine:
    """The simulator, slowly enough that a fault finds it at work."""
    place = find_place(GPU, EngineChoice.SIM)
    return PacedEngine(engine_at(place, find_model(MODEL), MODEL), SCALE)


def main(folder: Path, slots: int) -> None:
    """Run or resume the study."""
    import victim  # this file by a name that a slot's process can import
    from rich.console import Console

    space = folder / "space.yaml"
    space.parent.mkdir(parents=True, exist_ok=True)
    space.write_text(SPACE)
    spec = TuneSpec(
        gpu=GPU,
        slo=Slo(e2e_p99_s=30.0),
        model=MODEL,
        engine=EngineChoice.SIM,
        space=space,
        requests=60,
        budget=Budget(TRIALS),
    )
    job, _ = make_job(spec)
    job = replace(job, predictor=None, engine=victim.paced())
    if slots > 1:
        pool = Pool.of_processes(
            shares_of([Card("")] * slots, cores=[]),
            job.engine,
            functools.partial(victim.paced),
            Platform.CPU,
        )
        job = replace(job, slots=pool, parallel=slots)
    print("begun", file=sys.stderr, flush=True)
    with interruptible(), watching(Console(quiet=True), quiet=True) as observer:
        result = tune(job, StudyPlace("chaos", folder / "studies"), observer)
    winner = result.winner
    print(
        json.dumps(
            {
                "recommendation": result.recommendation,
                "flags": dict(winner.flags) if winner else None,
                "rps": winner.throughput_rps if winner else None,
                "trials": dict(result.trials),
                "launches": result.launches,
            }
        )
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
