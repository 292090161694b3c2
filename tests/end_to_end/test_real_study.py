"""A whole study on a real vLLM on this machine's CPU, from the command line to the profile.

Run with `-m vllm`; KIMI_TUNE_VLLM_PYTHON names the interpreter that has vLLM where it is not this one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import psutil
import pytest
from tiny_model import write_tiny_model

from tuner.profiles import load_profile
from tuner.space import find_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3000)]

LOOK_EVERY_S = 5.0
"""A look at every process takes the CPU from the client that is being tested."""
PYTHON = os.environ.get("KIMI_TUNE_VLLM_PYTHON")


@dataclass
class Ended:
    """A command that has ended, and the sessions in which it ran servers."""

    code: int
    out: str
    err: str
    sessions: set[int] = field(default_factory=set)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a trace of short requests."""
    assert find_vllm(PYTHON) is not None, "no vLLM here: install it, or set KIMI_TUNE_VLLM_PYTHON"
    where = tmp_path_factory.mktemp("real")
    write_tiny_model(where / "tiny")
    rng = random.Random(3)
    at_ms, rows = 0.0, []
    for _ in range(300):
        at_ms += rng.expovariate(4.0) * 1000
        row = {"input_length": rng.randint(20, 200), "output_length": rng.randint(4, 24)}
        rows.append(json.dumps({"timestamp": round(at_ms), **row}))
    (where / "trace.jsonl").write_text("\n".join(rows) + "\n")
    return where


def kimi_tune(folder: Path, *words: str) -> Ended:
    """Run a command line to its end, noting every session in which a server of ours ran meanwhile."""
    vllm = ["--vllm-python", PYTHON] if PYTHON else []
    command = [
        sys.executable,
        "-m",
        "tuner",
        "--engine",
        "vllm",
        "--gpu",
        "cpu",
        "--model",
        str(folder / "tiny"),
    ]
    command += ["--trace", str(folder / "trace.jsonl"), "--json", *vllm, *words]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err)
        sessions: set[int] = set()
        while process.poll() is None:
            sessions |= {os.getsid(p.pid) for p in servers(folder)}
            time.sleep(LOOK_EVERY_S)
    return Ended(process.returncode, (folder / "out").read_text(), (folder / "err").read_text(), sessions)


def servers(folder: Path) -> list[psutil.Process]:
    """Processes that serve our model."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if (
            str(folder / "tiny") in words
            and "--served-model-name" in words
            and psutil.pid_exists(process.pid)
        ):
            found.append(process)
    return found


def in_sessions(sessions: set[int]) -> list[int]:
    """Processes that still live in these sessions."""
    alive = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) in sessions:
                alive.append(pid)
        except ProcessLookupError:
            continue
    return alive


@pytest.fixture(scope="module")
def study(folder: Path) -> Ended:
    """A study of three launches; few requests and a tight SLO keep its replays short."""
    return kimi_tune(folder, "--slo-p99", "5s", "--trials", "3", "--requests", "60", "--study", "three")


def test_a_real_server_is_tuned_from_start_to_profile(folder: Path, study: Ended) -> None:
    assert study.code == 0, study.err
    result = json.loads(study.out)
    assert result["engine"] == "vllm" and result["gpu"] == "cpu"
    assert result["recommendation"] in ("tuned", "default")
    assert result["winner"]["throughput_rps"] > 0 and result["winner"]["p99_s"] < 5.0
    assert result["baseline"]["throughput_rps"] > 0
    assert sum(result["trials"][name] for name in ("ok", "slo", "crash")) == 3
    assert result["launches"] >= 4 and result["engine_seconds"] > 0
    profile = load_profile(folder / "studies" / "three" / "profile.yaml")
    assert profile.provenance == "measured"
    assert "SIMULATED" not in study.err


def test_the_study_holds_what_was_measured(folder: Path, study: Ended) -> None:
    told = optuna.load_study(study_name="three", storage=f"sqlite:///{folder}/studies/three/study.db")
    complete = [t for t in told.trials if t.state is optuna.trial.TrialState.COMPLETE]
    assert len(complete) >= 3 and all(set(t.constraints) == {"crash", "p99"} for t in complete)
    assert (folder / "studies" / "three" / "trials" / "0" / "server.log").stat().st_size > 0


def test_no_process_is_left_behind(study: Ended) -> None:
    assert len(study.sessions) >= 4, "every launch had a session of its own"
    deadline = time.monotonic() + 10.0
    while (left := in_sessions(study.sessions)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


def test_a_configuration_that_cannot_start_is_a_crash_and_not_zero_throughput(folder: Path) -> None:
    space = folder / "crash.yaml"
    space.write_text("parameters:\n  quantization: [awq]\nfixed:\n  enforce-eager: true\n")
    words = (
        "--slo-p99",
        "5s",
        "--trials",
        "2",
        "--requests",
        "20",
        "--space",
        str(space),
        "--study",
        "crash",
    )
    ran = kimi_tune(folder, *words)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["trials"]["crash"] == 1
    told = optuna.load_study(study_name="crash", storage=f"sqlite:///{folder}/studies/crash/study.db")
    crashed = next(t for t in told.trials if t.user_attrs.get("outcome") == "crash")
    assert crashed.constraints["crash"] > 0
    assert crashed.user_attrs["cause"]
    assert in_sessions(ran.sessions) == []
