"""How much faster four slots search than one: the simulated engine in scaled real time, one run for both.

    python tests/benchmarks/parallel.py [--slots 4] [--trials 25] [--scale 0.04] [--out parallel.json]

The search phase only, from the end of the baseline to the first final. Searches take different ways, so the
speed-up is that of the work done: engine seconds of the told trials for each second of the clock. The sampler
proposes without the guide, which would end so small a search after a handful of trials, and whose seconds of
thought a real trial of minutes does not notice.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tuner.cli.setup import engine_at, find_place
from tuner.cli.tune import make_job
from tuner.engines.base import Engine
from tuner.hardware import Platform
from tuner.models import find_model
from tuner.slots import Card, PacedEngine, Pool, shares_of
from tuner.spec import Budget, EngineChoice, Slo, TuneSpec
from tuner.study import StudyPlace, tune

GPU, MODEL = "A100-80G", "kimi-k2.6-awq"


class SearchOver(Exception):
    """The finals are not part of it."""


class Clock:
    """Notes when the baseline ends and when the finals begin, and what the trials cost in between."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0
        self.engine_s = 0.0
        self.trials = 0

    def trial_finished(self, record: Any, best: Any) -> None:
        if record.number == 0:
            self.began = time.monotonic()
        elif record.outcome.value in ("ok", "slo", "crash"):
            self.engine_s += record.engine_s
            self.trials += 1
            self.ended = time.monotonic()

    def final_started(self, *said: Any) -> None:
        raise SearchOver

    def __getattr__(self, name: str) -> Any:
        return lambda *said, **more: None


def paced(scale: float) -> Engine:
    """What runs in a slot."""
    place = find_place(GPU, EngineChoice.SIM)
    return PacedEngine(engine_at(place, find_model(MODEL), MODEL), scale)


def search(slots: int, trials: int, scale: float, folder: Path, seed: int) -> dict[str, float]:
    """One study's search on so many slots."""
    spec = TuneSpec(
        gpu=GPU,
        slo=Slo(e2e_p99_s=30.0),
        model=MODEL,
        engine=EngineChoice.SIM,
        requests=200,
        budget=Budget(trials),
        seed=seed,
    )
    job, _ = make_job(spec)
    import parallel  # this file by a name that a slot's process can import

    pool = Pool.of_processes(
        shares_of([Card("")] * slots, cores=[]),
        job.engine,
        functools.partial(parallel.paced, scale),
        Platform.CPU,
    )
    clock = Clock()
    try:
        plain = replace(job, predictor=None, slots=pool, parallel=slots)
        tune(plain, StudyPlace(f"slots-{slots}", folder), clock)  # type: ignore[arg-type]
    except SearchOver:
        pass
    finally:
        pool.close()
    wall_s = clock.ended - clock.began
    return {
        "slots": slots,
        "trials": clock.trials,
        "wall_s": round(wall_s, 2),
        "engine_s": round(clock.engine_s, 1),
        "work_rate": clock.engine_s * scale / wall_s,
        "trials_a_minute": 60.0 * clock.trials / wall_s,
    }


def main() -> None:
    """Both searches, and how they compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--trials", type=int, default=25)
    parser.add_argument("--scale", type=float, default=0.04)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            search(slots, asked.trials, asked.scale, Path(folder), asked.seed) for slots in (1, asked.slots)
        ]
    one, many = runs
    found = {
        "scale": asked.scale,
        "seed": asked.seed,
        "runs": runs,
        "speed_up": round(many["work_rate"] / one["work_rate"], 3),
        "speed_up_in_trials": round(many["trials_a_minute"] / one["trials_a_minute"], 3),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
