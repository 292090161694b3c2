"""Studies that are hurt at a random moment and resumed: nothing told is lost, nothing counted twice.

    python tests/chaos/chaos.py --studies 200 [--seed 0] [--out tests/chaos/chaos.json]

Every study is a process of its own, with one or two slots; a fault and its moment are drawn from the seed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FAULTS = ("kill tuner", "ctrl-c", "ctrl-c twice", "storage locked", "kill slot", "kill slot and tuner")
LOCKED_S = 2.0
LIMIT_S = 240.0


@dataclass
class Outcome:
    """What one hurt study came to; `wrong` is empty where all holds."""

    number: int
    slots: int
    fault: str
    at_s: float
    hit: bool = False
    told_before: int = 0
    wrong: list[str] = field(default_factory=list)


class Study:
    """One study's folder, and its processes by a mark in their environment."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.folder, self.slots = folder, slots
        self.mark = uuid.uuid4().hex

    def start(self) -> subprocess.Popen[str]:
        """Start the tuner and wait until its study begins."""
        path = os.pathsep.join([str(ROOT), str(HERE)])
        process = subprocess.Popen(
            [sys.executable, str(HERE / "victim.py"), str(self.folder), str(self.slots)],
            env={**os.environ, "PYTHONPATH": path, "KIMI_TUNE_CHAOS": self.mark, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        while process.poll() is None and "begun" not in process.stderr.readline():
            pass
        return process

    def left(self) -> list[psutil.Process]:
        """Its living processes."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("KIMI_TUNE_CHAOS") == self.mark and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def wait_gone(self, limit_s: float = 30.0) -> bool:
        """Whether all its processes end by themselves."""
        deadline = time.monotonic() + limit_s
        while self.left():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def told(self) -> dict[int, tuple[str, float]]:
        """Its told launches: configuration and value by trial number."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        database = self.folder / "studies" / "chaos" / "study.db"
        if not database.exists():
            return {}
        try:
            study = optuna.load_study(study_name="chaos", storage=f"sqlite:///{database}")
        except KeyError:
            return {}
        told = {}
        for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)):
            attrs = {**trial.user_attrs, **trial.user_attrs.get("detail", {})}
            if "repeat_of" not in attrs and attrs["outcome"] != "refused":
                told[trial.number] = (attrs["key"], float(trial.value or 0.0))
        return told


def hurt(study: Study, process: subprocess.Popen[str], fault: str, random_: random.Random) -> bool:
    """Do it; False where there was nothing left to hurt."""
    slots = [p for p in study.left() if p.pid != process.pid]
    if process.poll() is not None or ("slot" in fault and not slots):
        return False
    if fault in ("kill slot", "kill slot and tuner"):
        random_.choice(slots).kill()
    if fault in ("kill tuner", "kill slot and tuner"):
        process.kill()
    if fault.startswith("ctrl-c"):
        process.send_signal(signal.SIGINT)
        if fault == "ctrl-c twice":
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
    if fault == "storage locked":
        database = study.folder / "studies" / "chaos" / "study.db"
        if not database.exists():
            return False
        threading.Thread(target=_lock, args=(database,)).start()
    return True


def _lock(database: Path) -> None:
    connection = sqlite3.connect(database, timeout=30.0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(LOCKED_S)
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        pass
    finally:
        connection.close()


def run(folder: Path, slots: int) -> tuple[dict[str, Any], dict[int, tuple[str, float]], float]:
    """An undisturbed study: its result, what it told, and the seconds from its beginning."""
    study = Study(folder, slots)
    process = study.start()
    begun = time.monotonic()
    out, error = process.communicate(timeout=LIMIT_S)
    if process.returncode:
        raise RuntimeError(error[-2000:])
    return json.loads(out), study.told(), time.monotonic() - begun


def one(number: int, seed: int, folder: Path, calm: dict[int, Any]) -> Outcome:
    """Hurt one study, resume it, and look at everything."""
    random_ = random.Random(f"{seed}/{number}")  # noqa: S311
    slots = random_.choice((1, 2))
    fault = random_.choice(FAULTS if slots > 1 else FAULTS[:4])
    result, told, seconds = calm[slots]
    done = Outcome(number, slots, fault, random_.uniform(0.0, 1.1 * seconds))
    study = Study(folder, slots)
    process = study.start()
    try:
        process.wait(timeout=done.at_s)
    except subprocess.TimeoutExpired:
        done.hit = hurt(study, process, fault, random_)
    try:
        process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        done.wrong.append("hangs after the fault")
        process.kill()
        process.communicate()
    if not study.wait_gone():
        done.wrong.append("leaves a process behind")
    before = study.told()
    done.told_before = len(before)
    again = study.start()
    out, error = again.communicate(timeout=LIMIT_S)
    if again.returncode:
        done.wrong.append(f"cannot be resumed: {error.strip().splitlines()[-1:]}")
        return done
    if not study.wait_gone():
        done.wrong.append("leaves a process behind after its end")
    after, resumed = study.told(), json.loads(out)
    if any(after.get(trial) != value for trial, value in before.items()):
        done.wrong.append("lost a told trial")
    keys = [key for key, _ in after.values()]
    if len(keys) != len(set(keys)) or len(keys) != len(told):
        done.wrong.append(f"counts {len(keys)} launches, {len(set(keys))} of them different, not {len(told)}")
    if resumed["recommendation"] != result["recommendation"] or resumed["rps"] != result["rps"]:
        done.wrong.append(f"recommends {resumed['rps']} requests/s, not {result['rps']}")
    elif slots == 1 and resumed["flags"] != result["flags"]:
        done.wrong.append(f"recommends {resumed['flags']}, not {result['flags']}")
    return done


def chaos(studies: int, seed: int, *, first: int = 0) -> tuple[list[Outcome], dict[str, Any]]:
    """So many hurt studies, and a summary."""
    with tempfile.TemporaryDirectory(prefix="kimi-tune-chaos-") as root:
        calm = {slots: run(Path(root) / f"calm-{slots}", slots) for slots in (1, 2)}
        outcomes = []
        for number in range(first, first + studies):
            done = one(number, seed, Path(root) / str(number), calm)
            outcomes.append(done)
            print(
                f"{number}: {done.fault} at {done.at_s:.2f} s, {done.slots} slots, "
                f"{done.told_before} told before: {'; '.join(done.wrong) or 'well'}",
                flush=True,
            )
    by_fault: dict[str, dict[str, int]] = {}
    for done in outcomes:
        counts = by_fault.setdefault(done.fault, collections.Counter())  # type: ignore[arg-type]
        counts["studies"] += 1
        counts["hit"] += done.hit
        counts["wrong"] += bool(done.wrong)
    return outcomes, {
        "studies": studies,
        "seed": seed,
        "first": first,
        "hit": sum(done.hit for done in outcomes),
        "wrong": [f"{d.number}: {d.fault}: {'; '.join(d.wrong)}" for d in outcomes if d.wrong],
        "by_fault": {fault: dict(counts) for fault, counts in sorted(by_fault.items())},
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    _, summary = chaos(asked.studies, asked.seed, first=asked.first)
    text = json.dumps(summary, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")
    sys.exit(bool(summary["wrong"]))


if __name__ == "__main__":
    main()
