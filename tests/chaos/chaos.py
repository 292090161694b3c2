"""Studies that are hurt at a random moment and resumed: nothing told is lost, nothing counted twice.

    python tests/chaos/chaos.py --studies 200 [--seed 0] [--lanes 4] [--out tests/chaos/chaos.json]

Every study is a process of its own: alone, with two slots beside each other (a process each), or with a
worker of another host on one PostgreSQL, where that is installed. Fault and moment are drawn from the seed.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE.parent / "helpers")]

from hurting import FAULTS, Study, hurt, in_child  # noqa: E402
from postgres import Database, database, programs  # noqa: E402
from victim import Setting  # noqa: E402

LIMIT_S = 240.0
Told = dict[int, tuple[str, float]]


@dataclass
class Outcome:
    """What one hurt study came to; `wrong` is empty where all holds."""

    number: int
    kind: str
    fault: str
    at_s: float
    hit: bool = False
    told_before: int = 0
    code: int | None = None
    """The tuner's exit code after the fault."""
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Calm:
    """An undisturbed study: what it recommends, what it told, and the seconds that it took."""

    result: dict[str, Any]
    told: Told
    seconds: float


def setting_of(kind: str, folder: Path, url: str | None) -> Setting:
    """Where a study of a kind runs; its folder is made."""
    folder.mkdir()
    storage = f"{url}?application_name={folder.name}" if kind == "hosts" else None
    return Setting(folder, 2 if kind == "beside" else 1, storage)


def told(setting: Setting) -> Told:
    """A study's told launches: configuration and value by trial number."""
    import optuna

    from tuner.study import join_study

    place = setting.place
    if setting.storage is None and not (place.folder / "study.db").exists():
        return {}
    try:
        study = join_study(place)
    except Exception:
        return {}
    found = {}
    for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)):
        attrs = {**trial.user_attrs, **trial.user_attrs.get("detail", {})}
        if "repeat_of" not in attrs and attrs["outcome"] != "refused":
            found[trial.number] = (attrs["key"], float(trial.value or 0.0))
    return found


def calm(kind: str, folder: Path, url: str | None) -> Calm:
    """A study that nothing disturbs."""
    study = Study(setting_of(kind, folder, url))
    began = time.monotonic()
    study.start()
    if not study.ended(LIMIT_S) or study.code != 0:
        raise RuntimeError(f"the undisturbed study of kind {kind} fails: {study.stderr()[-2000:]}")
    seconds = time.monotonic() - began
    study.end_worker()
    return Calm(study.result(), in_child(told, study.setting), seconds)


def one(number: int, seed: int, root: Path, url: str | None, calms: dict[str, Calm]) -> Outcome:
    """Hurt one study, resume it, and look at everything."""
    random_ = random.Random(f"{seed}/{number}")
    kind = random_.choice(list(calms))
    fault = random_.choice(FAULTS[kind])
    done = Outcome(number, kind, fault, random_.uniform(0.0, 1.1 * calms[kind].seconds))
    study = Study(setting_of(kind, root / str(number), url))
    try:
        _hurt_and_resume(study, done, random_, calms[kind])
    except Exception:
        done.wrong.append(f"the check itself fails: {traceback.format_exc()[-600:]}")
    finally:
        study.kill()
    print(
        f"{number}: {kind}, {fault} at {done.at_s:.2f} s, {'hit' if done.hit else 'missed'}, "
        f"exit {done.code}, {done.told_before} told before: {'; '.join(done.wrong) or 'well'}",
        flush=True,
    )
    return done


def _hurt_and_resume(study: Study, done: Outcome, random_: random.Random, expected: Calm) -> None:
    study.start()
    mend = None
    if not study.ended(done.at_s):
        done.hit, mend = hurt(study, done.fault, random_)
    if not study.ended(LIMIT_S):
        done.wrong.append("hangs after the fault")
        study.kill()
    done.code = study.code
    if mend is not None:
        mend()
    if not study.wait_gone():
        done.wrong.append("leaves a process behind")
    if "Traceback" in study.stderr():
        done.wrong.append(f"says a traceback: {study.stderr()[-400:]}")
    before = in_child(told, study.setting)
    done.told_before = len(before)
    study.start()
    if not study.ended(LIMIT_S) or study.code != 0:
        done.wrong.append(f"cannot be resumed: exit {study.code}, {study.stderr()[-400:]}")
        return
    if not study.wait_gone():
        done.wrong.append("leaves a process behind after its end")
    if not study.end_worker():
        done.wrong.append("its worker does not end")
    done.wrong += differences(before, in_child(told, study.setting), study.result(), expected, done.kind)


def differences(before: Told, after: Told, result: dict[str, Any], expected: Calm, kind: str) -> list[str]:
    """What a resumed study has lost, counted twice, or recommends otherwise than an undisturbed one."""
    wrong = []
    if any(after.get(trial) != value for trial, value in before.items()):
        wrong.append("lost a told trial")
    keys = [key for key, _ in after.values()]
    if len(keys) != len(set(keys)) or len(keys) != len(expected.told):
        wrong.append(f"counts {len(keys)} launches, {len(set(keys))} different, not {len(expected.told)}")
    ours, theirs = (
        {key: said[key] for key in ("recommendation", "rps", *(["flags"] if kind == "alone" else []))}
        for said in (result, expected.result)
    )
    if ours != theirs:  # trials beside each other end in any order, which may settle a tie otherwise
        wrong.append(f"recommends {ours}, not {theirs}")
    return wrong


def _warm() -> None:
    """Load here what every process of a study would load anew."""
    import optuna

    import tuner.engines.simulated  # noqa: F401

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.RDBStorage("sqlite:///:memory:")
    optuna.create_study(storage=storage, sampler=optuna.samplers.TPESampler()).ask()
    storage.engine.dispose()


@contextmanager
def _shared_storage() -> Iterator[Database | None]:
    if importlib.util.find_spec("psycopg") is None or programs() is None:
        yield None
        return
    with database() as running:
        yield running


def chaos(studies: int, seed: int, *, first: int = 0, lanes: int = 1) -> tuple[list[Outcome], dict[str, Any]]:
    """So many hurt studies, `lanes` of them at a time, and a summary."""
    _warm()
    with _shared_storage() as server, tempfile.TemporaryDirectory(prefix="kimi-tune-chaos-") as folder:
        root, url = Path(folder), server.url if server is not None else None
        kinds = [kind for kind in FAULTS if kind != "hosts" or url is not None]
        calms = {kind: calm(kind, root / f"calm-{kind}", url) for kind in kinds}
        print({kind: round(found.seconds, 1) for kind, found in calms.items()}, flush=True)
        with ProcessPoolExecutor(lanes, multiprocessing.get_context("fork")) as pool:
            asked = [
                pool.submit(one, number, seed, root, url, calms) for number in range(first, first + studies)
            ]
            outcomes = [ask.result() for ask in asked]
    return outcomes, summary(outcomes, seed, first)


def summary(outcomes: list[Outcome], seed: int, first: int) -> dict[str, Any]:
    """Counts by kind and fault, and all that was wrong."""
    by_fault: dict[str, collections.Counter[str]] = {}
    for done in outcomes:
        counts = by_fault.setdefault(f"{done.kind}: {done.fault}", collections.Counter(hit=0, wrong=0))
        counts.update(studies=1, hit=int(done.hit), wrong=int(bool(done.wrong)))
    return {
        "studies": len(outcomes),
        "seed": seed,
        "first": first,
        "hit": sum(done.hit for done in outcomes),
        "wrong": [f"{d.number}: {d.kind}, {d.fault}: {'; '.join(d.wrong)}" for d in outcomes if d.wrong],
        "by_fault": {fault: dict(counts) for fault, counts in sorted(by_fault.items())},
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    _, found = chaos(asked.studies, asked.seed, first=asked.first, lanes=asked.lanes)
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
