"""The main job on the simulated engine, from the command line to the profile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

MAIN = ("--gpu", "A100-80G", "--slo-p99", "30s")
SHARED = Path(__file__).parents[2] / ".." / "shared" / "traces"
RESULT_KEYS = {
    "study", "engine", "gpu", "model", "slo", "recommendation", "winner", "baseline", "gain", "trials",
    "launches", "engine_seconds",
}  # fmt: skip
MEASURED_KEYS = {"flags", "command", "throughput_rps", "output_tps", "p99_s", "p99_interval_s", "users"}


def set_flags(flags: dict) -> list[str]:
    """The words that give `simulate` these flags."""
    return [word for name, value in flags.items() for word in ("--set", f"{name}={str(value).lower()}")]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """The main command's JSON, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("main")
    ran = subprocess.run(
        [sys.executable, "-m", "tuner", *MAIN, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )

    return json.loads(ran.stdout), folder


def test_the_main_command_recommends(told) -> None:
    result, _ = told
    assert set(result) >= RESULT_KEYS
    assert result["engine"] == "sim"
    assert result["gpu"] == "A100-80G"
    assert result["model"] == "kimi-k2.6-awq"
    assert result["slo"] == {"e2e_p99_s": 30.0}
    assert result["recommendation"] == "tuned"
    assert set(result["winner"]) >= MEASURED_KEYS
    assert set(result["baseline"]) >= MEASURED_KEYS | {"note"}
    assert set(result["trials"]) == {"ok", "slo", "crash", "refused", "machine"}
    assert result["winner"]["command"].startswith("vllm serve ")
    assert result["gain"] == pytest.approx(
        result["winner"]["throughput_rps"] / result["baseline"]["throughput_rps"], rel=1e-6
    )
    assert result["gain"] > 1.05
    assert result["winner"]["p99_s"] <= 30.0
    assert result["winner"]["users"] > result["baseline"]["users"] > 0


@pytest.mark.parametrize("who", ["winner", "baseline"])
def test_the_gain_is_real_in_the_simulator(told, kimi_tune, who: str) -> None:
    result, _ = told
    flags = set_flags(result[who]["flags"])
    ran = kimi_tune("simulate", *MAIN, "--find-max", "--json", *flags)
    assert ran.code == 0
    assert ran.json["capacity_rps"] == result[who]["throughput_rps"]


def test_the_study_is_optunas_own(told) -> None:
    result, folder = told
    storage = f"sqlite:///{folder}/studies/{result['study']}/study.db"
    study = optuna.load_study(study_name=result["study"], storage=storage)
    complete = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert len(complete) >= result["launches"] - 6
    assert all(set(t.constraints) == {"crash", "p99"} for t in complete)
    assert study.best_trial.value > 0
    assert complete[0].number == 0 and complete[0].user_attrs["origin"] == "vllm-default"


def test_the_same_seed_gives_the_same_recommendation(told, kimi_tune) -> None:
    result, _ = told
    again = kimi_tune(*MAIN, "--json").json
    assert again["winner"] == result["winner"]
    assert again["gain"] == result["gain"]


def test_a_finished_study_prints_its_result_again(told, kimi_tune, monkeypatch) -> None:
    result, folder = told
    monkeypatch.chdir(folder)
    started = time.monotonic()
    again = kimi_tune(*MAIN, "--json")
    assert again.code == 0
    assert again.json == result
    other = kimi_tune(*MAIN, "--json", "--new", "--trials", "2")
    assert other.json["study"] != result["study"]
    assert time.monotonic() > started


@pytest.mark.parametrize("format", ["vllm", "shell", "json"])
def test_the_recommendation_is_exported(told, kimi_tune, monkeypatch, format: str) -> None:
    result, folder = told
    monkeypatch.chdir(folder)
    ran = kimi_tune("export", result["study"], "--format", format)
    assert ran.code == 0
    assert "SIMULATED" in ran.out.splitlines()[0] or format == "json"
    for name in result["winner"]["flags"]:
        assert name in ran.out or name.replace("-", "_") in ran.out


def test_on_a_screen_it_shows_plan_trials_recommendation_and_users(kimi_tune) -> None:
    ran = kimi_tune(*MAIN, "--trials", "3")
    assert ran.code == 0
    for word in (
        "SIMULATED",
        "max-num-seqs",
        "coverage",
        "trial 1/3",
        "vllm serve",
        "concurrent users",
        "over",
    ):
        assert word in ran.out, word
    assert ran.err == ""


def test_a_dry_run_launches_nothing(kimi_tune) -> None:
    ran = kimi_tune(*MAIN, "--dry-run")
    assert ran.code == 0
    assert "search" in ran.out and "max-num-seqs" in ran.out
    assert not Path("studies").exists()
    as_json = kimi_tune(*MAIN, "--dry-run", "--json")
    assert as_json.json["trials"] == 16


def test_a_hopeless_slo_ends_with_exit_3_and_the_closest(kimi_tune) -> None:
    ran = kimi_tune("--gpu", "A100-80G", "--slo-p99", "50ms", "--trials", "2", "--json")
    assert ran.code == 3
    assert ran.json["recommendation"] == "none"
    assert ran.json["winner"] is None and ran.json["gain"] is None


@pytest.mark.parametrize(
    "name", ["azure2023/AzureLLMInferenceTrace_conv.csv", "mooncake_fast25/conversation_trace.jsonl"]
)
def test_real_traces_are_tuned(kimi_tune, name: str) -> None:
    trace = SHARED / name
    if not trace.exists():
        pytest.skip(f"{name} is not here")
    ran = kimi_tune(*MAIN, "--trace", trace, "--trials", "6")
    assert ran.code == 0
    assert "coverage  max-model-len" in ran.out
    assert "requests/s" in ran.out


def test_interrupted_and_run_again_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tuner", *MAIN, "--trials", "8", "--json"]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first.stderr is not None
    for line in first.stderr:
        if line.startswith("trial 1/"):
            break
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert "Traceback" not in err and out == ""
    assert "interrupted; the same command goes on where it stopped" in err
    name = next(p.name for p in (tmp_path / "studies").iterdir())
    storage = f"sqlite:///{tmp_path}/studies/{name}/study.db"
    trials = optuna.load_study(study_name=name, storage=storage).trials
    assert sum(t.state.is_finished() for t in trials) >= 1
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr

    result = json.loads(second.stdout)
    assert "trial 1/8" not in second.stderr, "what was measured is not measured again"
    elsewhere = tmp_path / "elsewhere"  # a study learns from those beside it
    elsewhere.mkdir()
    undisturbed = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    alone = json.loads(undisturbed.stdout)
    assert result["trials"] == alone["trials"]
    assert result["winner"]["flags"] == alone["winner"]["flags"]


def test_an_interruption_before_there_is_a_study_says_nothing_of_a_report(kimi_tune, monkeypatch) -> None:
    from tuner.cli import tune as command

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_study", interrupted)
    ran = kimi_tune(*MAIN)
    assert ran.code == 130
    assert "interrupted" in ran.err and "report" not in ran.err
