"""What a launch that does not work is told as, and that nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contract import small_trace
from vllm_helpers import QUICK, Faults

from tuner.engines.base import Bound, FailureKind, LaunchFailure
from tuner.engines.vllm import VllmEngine
from tuner.errors import EngineUnavailable
from tuner.hardware import find_gpu
from tuner.replay import Workload
from tuner.replay.warmup import WARM_UP_OUTPUT_TOKENS, warm_up
from tuner.space import LaunchConfig

SMALL = LaunchConfig.of({"max-num-seqs": 4})
TEXTS = {
    "ValueError: No available memory for the cache blocks.": FailureKind.KV_MEMORY,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": FailureKind.OOM,
    "api_server.py: error: unrecognized arguments: --swap-space 4": FailureKind.BAD_FLAG,
    "ValueError: Free memory on device cuda:0 (3.2/79.2 GiB) on startup is less than desired GPU memory "
    "utilization (0.9, 71.3 GiB).": FailureKind.GPU_BUSY,
}


def launch(engine: VllmEngine, folder: Path, config: LaunchConfig = SMALL) -> LaunchFailure:
    with pytest.raises(LaunchFailure) as caught:
        engine.launch(config, folder)
    return caught.value


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: TEXTS[text].value)
def test_the_log_gives_the_cause(engine: VllmEngine, faults: Faults, tmp_path: Path, text: str) -> None:
    faults.set("dies", text)
    failure = launch(engine, tmp_path / "trial")
    assert failure.kind is TEXTS[text]
    assert failure.log == tmp_path / "trial" / "server.log"
    assert failure.seconds > 0


def test_a_bound_is_handed_on(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    faults.set(
        "dies",
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache "
        "is needed, which is larger than the available KV cache memory (10.34 GiB). Based on the available "
        "memory, the estimated maximum model length is 84704.",
    )
    failure = launch(engine, tmp_path / "trial")
    assert failure.kind is FailureKind.MODEL_LEN
    assert Bound("max-model-len", max=84704) in failure.bounds


def test_an_unknown_death_still_has_a_cause(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    faults.set("dies", "RuntimeError: the moon is in the wrong phase")
    failure = launch(engine, tmp_path / "trial")
    assert failure.kind is FailureKind.UNKNOWN
    assert "moon" in failure.cause


def test_killed_while_starting_is_host_memory(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    faults.set("killed")
    assert launch(engine, tmp_path / "trial").kind is FailureKind.HOST_MEMORY


def test_silence_without_cpu_is_a_hang(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    faults.set("hangs_with_family")
    failure = launch(engine, tmp_path / "trial")
    assert failure.kind is FailureKind.HUNG
    assert "no CPU time" in failure.cause
    assert not faults.survivors()


def test_silence_with_cpu_is_work(
    make_engine: Callable[..., VllmEngine], faults: Faults, tmp_path: Path
) -> None:
    limits = replace(QUICK, standstill_s=1.0)
    faults.set("computes_silently", "1.6")
    with make_engine(limits=limits).launch(SMALL, tmp_path / "trial") as server:
        assert server.facts.startup_s > 1.6


def test_never_ready_is_a_timeout(
    make_engine: Callable[..., VllmEngine], faults: Faults, tmp_path: Path
) -> None:
    limits = replace(QUICK, startup_s=1.0)
    faults.set("never_ready")
    assert launch(make_engine(limits=limits), tmp_path / "trial").kind is FailureKind.STARTUP_TIMEOUT
    assert not faults.survivors()


def test_another_server_on_the_port_is_seen(engine: VllmEngine, faults: Faults, tmp_path: Path) -> None:
    faults.set("other_server")
    phases: list[str] = []
    with pytest.raises(LaunchFailure) as caught:
        engine.launch(SMALL, tmp_path / "trial", phases.append)
    assert caught.value.kind is FailureKind.PORT
    assert "somebody-else" in caught.value.cause
    assert sum("port is taken" in phase for phase in phases) == 2
    assert len(list((tmp_path / "trial").glob("server*.log"))) == 3  # every try keeps its log


def test_a_missing_command_is_no_engine(make_engine: Callable[..., VllmEngine], tmp_path: Path) -> None:
    engine = make_engine(launcher="/nowhere/vllm serve")
    with pytest.raises(EngineUnavailable, match="/nowhere/vllm"):
        engine.launch(SMALL, tmp_path / "trial")


def test_without_vllm_there_is_no_engine() -> None:
    with pytest.raises(EngineUnavailable, match="pip install"):
        VllmEngine(None, model="m", gpu=find_gpu("cpu"))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("exits_while_serving", FailureKind.ENGINE_DEAD),
        ("killed_while_serving", FailureKind.ENGINE_DEAD),
        ("engine_dead", FailureKind.ENGINE_DEAD),
        ("hangs_while_serving", FailureKind.HUNG),
        ("spins_while_serving", FailureKind.HUNG),
    ],
)
def test_a_server_lost_during_a_replay(
    engine: VllmEngine, faults: Faults, tmp_path: Path, fault: str, kind: FailureKind
) -> None:
    faults.set(fault)
    with (
        engine.launch(SMALL, tmp_path / "trial") as server,
        pytest.raises(LaunchFailure) as caught,
    ):
        server.replay(Workload(small_trace()))
    assert caught.value.kind is kind
    assert caught.value.cause
    assert not faults.survivors()


def test_facts_come_from_the_server(engine: VllmEngine, tmp_path: Path) -> None:
    with engine.launch(LaunchConfig.of({"max-num-seqs": 4, "swap-space": 8}), tmp_path / "trial") as server:
        facts = server.facts
        assert facts.kv_tokens == 64000
        assert facts.weights_gib == 14.99
        assert facts.effective["max-model-len"] == 4096
        assert facts.effective["block-size"] == 16
        assert facts.effective["gpu-memory-utilization"] == 0.9
        assert facts.effective["swap-space"] == 8
        # swap-space is called otherwise since 0.18, and an empty model folder is served with random weights
        assert facts.command[3:] == ("--kv-offloading-size", "8", "--max-num-seqs", "4")
        assert any("load-format dummy" in note for note in facts.notes)
        assert ("--load-format", "dummy") == server.argv[server.argv.index("--load-format") :][:2]
        assert server.served_name in server.argv


def test_counters_are_those_of_one_replay(engine: VllmEngine, tmp_path: Path) -> None:
    trace = small_trace()
    with engine.launch(SMALL, tmp_path / "trial") as server:
        first = server.replay(Workload(trace))  # a warm-up goes before it, and is not counted
        second = server.replay(Workload(trace))
    for replay in (first, second):
        assert replay.counters["prompt_tokens"] == trace.input_tokens.sum()
        assert replay.counters["generation_tokens"] == trace.output_tokens.sum()
        assert replay.counters["finished_length"] == len(trace)
        assert replay.counters["preemptions"] == 0


def test_the_warm_up_touches_every_length_class() -> None:
    trace = small_trace(100, inputs=5000, outputs=900)
    warm = warm_up(trace).trace
    assert len(warm) == 8
    assert warm.input_tokens.min() == trace.input_tokens.min()
    assert warm.input_tokens.max() == trace.input_tokens.max()
    assert warm.output_tokens.max() <= WARM_UP_OUTPUT_TOKENS
    assert not np.any(warm.arrival_s)
    assert len(warm_up(small_trace(1)).trace) == 1
