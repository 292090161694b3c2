"""A real vLLM on this machine's CPU. Run with `-m vllm`; KIMI_TUNE_VLLM_PYTHON names its interpreter."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from contract import check_records, small_trace
from tiny_model import write_tiny_model

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.vllm import LauncherKind, VllmEngine, VllmServer, sessions
from tuner.hardware import find_gpu
from tuner.replay import Workload
from tuner.space import LaunchConfig, find_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]

TRACE = small_trace(12, 4.0, inputs=300, outputs=12)
CONFIGS = (
    {"enforce-eager": True, "max-num-seqs": 8, "max-model-len": 2048},
    {"enforce-eager": True, "max-num-seqs": 2, "enable-prefix-caching": False, "max-model-len": 1024},
    {"enforce-eager": True, "block-size": 64, "max-num-batched-tokens": 2048, "max-model-len": 2048},
)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def real(model: Path, tmp_path: Path) -> Iterator[Callable[[LauncherKind], VllmEngine]]:
    made: list[VllmEngine] = []

    def make(launcher: LauncherKind) -> VllmEngine:
        installed = find_vllm(os.environ.get("KIMI_TUNE_VLLM_PYTHON"))
        assert installed is not None, "no vLLM: set KIMI_TUNE_VLLM_PYTHON to the interpreter that has it"
        engine = VllmEngine(
            installed,
            model=str(model),
            gpu=find_gpu("cpu"),
            launcher=launcher,
            state_folder=tmp_path / "state",
        )
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def answer(server: VllmServer) -> dict[str, object]:
    """A greedy completion: random weights are drawn from a fixed seed, so that every server says the same."""
    body = {"model": server.served_name, "prompt": list(range(100, 140)), "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(
        f"{server.base_url}/v1/completions",
        json.dumps({**body, "ignore_eos": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        said = json.load(reply)
    return {"text": said["choices"][0]["text"], "usage": said["usage"]["completion_tokens"]}


def serve(engine: VllmEngine, number: int, folder: Path) -> dict[str, object]:
    config = LaunchConfig.of(CONFIGS[number])
    phases: list[str] = []
    with engine.launch(config, folder / str(number), phases.append) as server:
        session = server.pid
        facts = server.facts
        assert facts.kv_tokens > 0
        for flag, value in config.items():
            assert facts.effective[flag] == value
        assert len(phases) > 3
        workload = Workload(TRACE)
        replay = server.replay(workload)
        check_records(replay, workload)
        assert replay.ok.all(), dict(replay.errors)
        assert replay.counters["generation_tokens"] == TRACE.output_tokens.sum()
        assert replay.counters["prompt_tokens"] == TRACE.input_tokens.sum()
        assert replay.counters["prefix_hit_tokens"] == 0  # a cold cache
        again = server.replay(Workload(TRACE, users=2))
        check_records(again, Workload(TRACE, users=2))
        assert again.counters["prefix_hit_tokens"] == 0
        said = answer(server)
    assert not sessions.members(session)
    assert server.notes == ()
    return said


def test_plain_and_forked_servers_answer_alike(
    real: Callable[[LauncherKind], VllmEngine], tmp_path: Path
) -> None:
    """Three configurations in a row from one import, each answering as a plain launch does."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    warm = real(LauncherKind.WARM)
    forked = [serve(warm, number, tmp_path / "warm") for number in range(len(CONFIGS))]
    assert warm.launcher is LauncherKind.WARM, warm.notes
    warm.close()
    plain = real(LauncherKind.PLAIN)
    assert forked == [serve(plain, number, tmp_path / "plain") for number in range(len(CONFIGS))]
    plain.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_what_cannot_start_is_a_failure_with_a_cause(
    real: Callable[[LauncherKind], VllmEngine], tmp_path: Path
) -> None:
    engine = real(LauncherKind.PLAIN)
    with pytest.raises(LaunchFailure) as caught:
        engine.launch(LaunchConfig.of({"max-model-len": 1_000_000, "enforce-eager": True}), tmp_path / "len")
    assert caught.value.kind is FailureKind.MODEL_LEN
    with pytest.raises(LaunchFailure) as caught:
        engine.launch(LaunchConfig.of({"no-such-flag": 1}), tmp_path / "flag")
    assert caught.value.kind is FailureKind.BAD_FLAG
    assert "no-such-flag" in caught.value.cause
