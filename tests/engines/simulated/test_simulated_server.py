"""What a simulated server records: verdicts under curtailment, closed loops, refusals, noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_helpers import make_trace

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.engines.simulated import SimulatedEngine, SimulatedServer
from tuner.hardware import find_gpu
from tuner.measure import judge
from tuner.measure.verdict import curtailment
from tuner.models import find_model
from tuner.replay import Replay, Status, Workload
from tuner.space import LaunchConfig
from tuner.spec import FlagValue, Slo
from tuner.traces.trace import Trace


def engine(gpu: str = "A100-80G", model: str = "kimi-k2.6-awq", **more: object) -> SimulatedEngine:
    return SimulatedEngine(find_gpu(gpu), find_model(model), "0.21.0", **more)  # type: ignore[arg-type]


def up(flags: dict[str, FlagValue] | None = None, **more: object) -> SimulatedServer:
    return engine(**more).launch(LaunchConfig.of(flags or {}), Path())  # type: ignore[arg-type]


def traffic(requests: int, rps: float, seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rps, requests))
    prompts = rng.lognormal(6.5, 0.8, requests).clip(1, 20_000)
    answers = rng.lognormal(5.0, 0.8, requests).clip(1, 2000)
    return make_trace(arrivals - arrivals[0], prompts.astype(int), answers.astype(int))


def same(one: Replay, other: Replay) -> bool:
    names = ("scheduled_s", "first_s", "last_s", "status", "tokens")
    return all(np.array_equal(getattr(one, n), getattr(other, n), equal_nan=True) for n in names)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 250),
    st.sampled_from([0.5, 3.0, 12.0, 60.0]),
    st.sampled_from(
        [
            Slo(e2e_p99_s=30.0),
            Slo(e2e_p99_s=6.0),
            Slo(ttft_p99_s=0.4),
            Slo(tpot_p99_s=0.02),
            Slo(9.0, 0.5, 0.03),
        ]
    ),
    st.sampled_from([None, 1, 20]),
    st.integers(0, 3),
)
def test_curtailment_never_changes_the_verdict(
    requests: int, rps: float, slo: Slo, users: int | None, seed: int
) -> None:
    server = up({"max-num-seqs": 64})
    workload = Workload(traffic(requests, rps, seed), users)
    whole = judge(server.replay(workload), slo)
    stopped = judge(server.replay(workload, stop=curtailment(slo, requests)), slo)
    assert stopped.passes == whole.passes
    if whole.passes:
        assert same(stopped.replay, whole.replay)
    assert stopped.replay.engine_s <= whole.replay.engine_s + 1e-9


def test_a_hopeless_replay_ends_early() -> None:
    server, workload = up(), Workload(traffic(1000, 80.0))
    whole = server.replay(workload)
    stopped = server.replay(workload, stop=curtailment(Slo(e2e_p99_s=10.0), 1000))
    assert stopped.stopped
    assert stopped.engine_s < 0.5 * whole.engine_s
    assert (stopped.status == Status.UNFINISHED).any()
    assert whole.ok.all()


def test_every_replay_starts_cold_and_gives_the_same() -> None:
    server, workload = up(), Workload(traffic(200, 4.0))
    assert same(server.replay(workload), server.replay(workload))


def test_noise_is_reproducible_and_differs_between_replays() -> None:
    workload = Workload(traffic(100, 4.0))
    runs = []
    for _ in range(2):
        server = up(noise=0.1, seed=3)
        runs.append([server.replay(workload), server.replay(workload)])
    assert same(runs[0][0], runs[1][0])
    assert same(runs[0][1], runs[1][1])
    assert not same(runs[0][0], runs[0][1])
    quiet = up().replay(workload)
    assert runs[0][0].e2e_s().mean() == pytest.approx(quiet.e2e_s().mean(), rel=0.1)
    assert not engine(noise=0.1).deterministic
    assert engine().deterministic


def test_a_closed_loop_has_so_many_users_and_no_think_time() -> None:
    trace = traffic(60, 1.0)
    replay = up().replay(Workload(trace, users=4))
    begin, end = replay.scheduled_s, replay.last_s
    for at in np.concatenate([begin, end]) + 1e-9:
        assert ((begin <= at) & (at < end)).sum() <= 4
    assert (begin[:4] == 0).all()
    # each begins the moment that another ends
    assert np.isin(begin[4:], end).all()
    assert replay.offered_rps == 0.0
    assert replay.ok.all()


def test_too_long_for_the_server_is_rejected_at_once() -> None:
    trace = make_trace([0.0, 0.1, 0.2], [100, 3000, 100], [50, 2000, 50])
    for users in (None, 1, 3):
        replay = up({"max-model-len": 4096}).replay(Workload(trace, users))
        assert replay.status.tolist() == [Status.OK, Status.REJECTED, Status.OK]
        assert np.isinf(replay.e2e_s()[1])
        assert replay.errors == {"rejected": 1}
        assert not np.isnan(replay.scheduled_s).any()


def test_counters_say_what_the_scheduler_did() -> None:
    chat = [[1, 2, 10 + i, 100 + i] for i in range(20)]
    trace = make_trace(np.arange(20) * 2.0, 256, 30, chat, 64)
    replay = up().replay(Workload(trace))
    # two shared blocks of 64 tokens, cold for the first request only
    assert replay.counters["prefix_hit_tokens"] == 19 * 128
    assert replay.counters["prefix_query_tokens"] == 20 * 256
    assert replay.counters["generation_tokens"] == 600
    assert replay.counters["preemptions"] == 0
    off = up({"enable-prefix-caching": False}).replay(Workload(trace))
    assert "prefix_hit_tokens" not in off.counters
    assert off.ttft_s()[1:].min() > replay.ttft_s()[1:].max()


def test_the_hosts_cache_brings_back_what_the_gpu_evicted() -> None:
    long = [[100 * (i % 8) + j for j in range(80)] for i in range(48)]
    trace = make_trace(np.arange(48) * 3.0, 80 * 64 + 1, 20, long, 64)
    flags = {"kv-cache-memory-bytes": 600_000_000, "max-model-len": 8192}
    without = up(flags).replay(Workload(trace))
    beside = up({**flags, "swap-space": 8}).replay(Workload(trace))
    assert without.counters["prefix_hit_tokens"] < 0.2 * without.counters["prefix_query_tokens"]
    assert beside.counters["prefix_hit_tokens"] > 0.7 * beside.counters["prefix_query_tokens"]
    assert beside.ttft_s()[8:].mean() < without.ttft_s()[8:].mean()


@pytest.mark.parametrize(
    ("flags", "kind", "flag"),
    [
        ({"gpu-memory-utilization": 0.1}, FailureKind.OOM, None),
        ({"gpu-memory-utilization": 0.335}, FailureKind.KV_MEMORY, "gpu-memory-utilization"),
        ({"gpu-memory-utilization": 0.37}, FailureKind.MODEL_LEN, "max-model-len"),
        ({"gpu-memory-utilization": 1.0}, FailureKind.BAD_FLAG, None),
        ({"max-model-len": 1_000_000}, FailureKind.MODEL_LEN, "max-model-len"),
        ({"block-size": 8}, FailureKind.ATTENTION_BACKEND, "block-size"),
        (
            {"max-num-seqs": 512, "max-num-batched-tokens": 256},
            FailureKind.BAD_FLAG,
            None,
        ),
        ({"tensor-parallel-size": 3}, FailureKind.TENSOR_PARALLEL, None),
        ({"tensor-parallel-size": 2}, FailureKind.TENSOR_PARALLEL, "tensor-parallel-size"),
        ({"max-num-sequences": 4}, FailureKind.BAD_FLAG, None),
    ],
)
def test_what_cannot_start_dies_as_a_real_server_does(
    flags: dict[str, FlagValue], kind: FailureKind, flag: str | None
) -> None:
    with pytest.raises(LaunchFailure) as caught:
        up(flags)
    failure = caught.value
    assert failure.kind is kind
    assert failure.cause
    assert failure.mend
    assert 10 <= failure.seconds <= 60
    assert not flag or [bound.flag for bound in failure.bounds] == [flag]


def test_launches_get_cheaper_when_the_graph_was_compiled_before() -> None:
    sim = engine()
    times = [
        sim.launch(LaunchConfig.of(flags), Path()).facts.startup_s
        for flags in ({}, {"gpu-memory-utilization": 0.85}, {"max-num-batched-tokens": 4096}, {})
    ]
    assert times[0] > times[2] > times[1] == times[3]


def test_facts_hold_the_values_in_force() -> None:
    facts = up({"max-model-len": "auto", "swap-space": 4}).facts
    assert facts.effective["max-num-seqs"] == 256
    assert facts.effective["max-model-len"] == 131072
    assert facts.command[:3] == ("vllm", "serve", "kimi-k2.6-awq")
    assert "--kv-offloading-size" in facts.command
    assert facts.kv_tokens > 1_000_000
    assert 25 < facts.weights_gib < 30


def test_a_stopped_server_serves_no_more() -> None:
    with up() as server:
        pass
    with pytest.raises(LaunchFailure):
        server.replay(Workload(traffic(3, 1.0)))


@pytest.mark.parametrize("flag", ["max-num-seqs", "max-num-batched-tokens"])
def test_a_starved_server_serves_less(flag: str) -> None:
    trace = traffic(400, 12.0)
    small, large = (
        up({"max-num-batched-tokens": 4096, flag: value}).replay(Workload(trace)).e2e_s()
        for value in ((4, 256) if flag == "max-num-seqs" else (256, 4096))
    )
    assert np.quantile(small, 0.9) > 1.2 * np.quantile(large, 0.9)


def test_more_cards_hold_more_and_serve_faster() -> None:
    trace = traffic(200, 2.0)
    shape = find_model("meta-llama/Llama-3.1-70B-Instruct")
    two, four = (
        SimulatedEngine(find_gpu(f"{n}xH200-141G"), shape, "0.21.0").launch(
            LaunchConfig.of({"tensor-parallel-size": n}), Path()
        )
        for n in (2, 4)
    )
    assert four.facts.kv_tokens > 2 * two.facts.kv_tokens
    assert four.replay(Workload(trace)).e2e_s().mean() < two.replay(Workload(trace)).e2e_s().mean()


def test_a_cpu_is_slow_and_schedules_step_by_step() -> None:
    server = SimulatedEngine(find_gpu("cpu"), find_model("Qwen/Qwen3-0.6B"), "0.32.0").launch(
        LaunchConfig.of({"max-model-len": 2048}), Path()
    )
    assert server.facts.effective["async-scheduling"] is False
    replay = server.replay(Workload(make_trace([0.0, 1.0], 100, 10)))
    assert replay.ok.all()
    assert replay.tpot_s().min() > 0.01


def test_swap_space_does_nothing_before_it_became_offloading() -> None:
    ids = [[100 * (i % 8) + j for j in range(80)] for i in range(48)]
    trace = make_trace(np.arange(48) * 3.0, 80 * 64 + 1, 20, ids, 64)
    flags: dict[str, FlagValue] = {"kv-cache-memory-bytes": 600_000_000, "max-model-len": 8192}
    old = SimulatedEngine(find_gpu("A100-80G"), find_model("kimi-k2.6-awq"), "0.17.0")
    one, other = (
        old.launch(LaunchConfig.of(config), Path()).replay(Workload(trace))
        for config in (flags, {**flags, "swap-space": 8})
    )
    assert same(one, other)


@pytest.mark.parametrize("version", ["0.18.0", "0.21.0"])
def test_tight_memory_preempts_and_still_answers_everything(version: str) -> None:
    sim = SimulatedEngine(find_gpu("A100-80G"), find_model("kimi-k2.6-awq"), version)
    server = sim.launch(
        LaunchConfig.of({"kv-cache-memory-bytes": 900_000_000, "max-model-len": 20_000}), Path()
    )
    replay = server.replay(Workload(traffic(150, 20.0)))
    assert replay.counters["preemptions"] > 0
    assert replay.ok.all()


def test_flags_beyond_the_simulation_are_named() -> None:
    assert up({"max-num-seqs": 64}).facts.notes == ("simulated",)
    notes = up({"scheduling-policy": "priority", "max-num-seqs": 64}).facts.notes
    assert notes == ("simulated", "without effect in the simulation: scheduling-policy")
