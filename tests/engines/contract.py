"""What every engine keeps to. Subclass `EngineContract`, give it `engine`, `good` and `bad`.

`bad` is a configuration that cannot start (None where the engine has none that fails cheaply).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.engines.base import Engine, FailureKind, LaunchFailure, ServerFacts
from tuner.replay import Curtailment, Replay, Status, Workload
from tuner.space import LaunchConfig
from tuner.traces.trace import Trace, TraceSource


def small_trace(requests: int = 24, rps: float = 40.0, *, inputs: int = 200, outputs: int = 12) -> Trace:
    """Requests at an even pace, lengths up to `inputs` and `outputs`, nothing shared."""
    source = np.random.default_rng(7)
    return Trace(
        arrival_s=np.arange(requests) / rps,
        input_tokens=source.integers(8, inputs, requests).astype(np.int32),
        output_tokens=source.integers(2, outputs, requests).astype(np.int32),
        session=np.arange(requests, dtype=np.int64),
        block_offsets=np.zeros(requests + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        block_tokens=0,
        source=TraceSource("test"),
    )


def check_records(replay: Replay, workload: Workload) -> None:
    """Whether a replay's columns agree with each other and with what was asked."""
    n = len(workload.trace)
    assert len(replay) == n
    columns = ("scheduled_s", "sent_s", "first_s", "last_s", "tokens", "first_tokens", "status")
    assert all(len(getattr(replay, name)) == n for name in columns)
    ok = replay.ok
    assert ok.any(), f"nothing was answered: {dict(replay.errors)}"
    assert (replay.tokens[ok] == workload.trace.output_tokens[ok]).all()
    assert (replay.first_tokens[ok] >= 1).all()
    # the clocks of two processes are one clock: nothing is read before it was sent
    assert (replay.first_s[ok] >= replay.sent_s[ok]).all()
    assert (replay.last_s[ok] >= replay.first_s[ok]).all()
    assert np.isinf(replay.e2e_s()[~ok]).all()
    assert replay.engine_s > 0
    assert set(replay.status.tolist()) <= {int(status) for status in Status}
    if workload.users is None:
        assert replay.offered_rps == pytest.approx(workload.offered_rps)
    else:
        assert replay.users == workload.users


class EngineContract:
    """The suite. Names of tests say what is promised."""

    trace = small_trace()

    @pytest.fixture
    def good(self) -> LaunchConfig:
        return LaunchConfig.of({"max-num-seqs": 8})

    @pytest.fixture
    def bad(self) -> LaunchConfig | None:
        return None

    def test_names_itself(self, engine: Engine) -> None:
        assert engine.name in ("vllm", "sim")
        assert engine.vllm_version[0].isdigit()
        assert isinstance(engine.deterministic, bool)
        assert engine.startup_estimate_s() > 0

    def test_a_server_says_what_it_is_and_replays(
        self, engine: Engine, good: LaunchConfig, tmp_path: Path
    ) -> None:
        phases: list[str] = []
        with engine.launch(good, tmp_path / "trial", phases.append) as server:
            facts = server.facts
            assert isinstance(facts, ServerFacts)
            assert facts.startup_s > 0
            assert facts.kv_tokens > 0
            assert facts.command[:2] == ("vllm", "serve")
            assert "--port" not in facts.command
            for flag, value in good.items():
                assert facts.effective[flag] == value
            for flag in ("max-num-seqs", "max-model-len", "block-size", "gpu-memory-utilization"):
                assert flag in facts.effective
            done: list[tuple[int, int]] = []
            workload = Workload(self.trace)
            replay = server.replay(workload, progress=lambda ended, planned: done.append((ended, planned)))
            check_records(replay, workload)
            assert not replay.stopped
            assert replay.ok.all(), dict(replay.errors)
            assert all(ended <= planned == len(self.trace) for ended, planned in done)
            closed = Workload(self.trace, users=3)
            check_records(server.replay(closed), closed)

    def test_a_hopeless_replay_is_stopped(self, engine: Engine, good: LaunchConfig, tmp_path: Path) -> None:
        with engine.launch(good, tmp_path / "trial") as server:
            rule = Curtailment.at({"e2e": 1e-6}, len(self.trace))
            replay = server.replay(Workload(self.trace), stop=rule)
            assert replay.stopped
            assert len(replay) == len(self.trace)

    def test_stop_twice_and_again_on_leaving(
        self, engine: Engine, good: LaunchConfig, tmp_path: Path
    ) -> None:
        with engine.launch(good, tmp_path / "trial") as server:
            server.stop()
            server.stop()

    def test_one_server_after_another(self, engine: Engine, good: LaunchConfig, tmp_path: Path) -> None:
        for number in range(2):
            with engine.launch(good, tmp_path / str(number)) as server:
                assert server.facts.kv_tokens > 0

    def test_an_error_inside_still_stops_it(self, engine: Engine, good: LaunchConfig, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), engine.launch(good, tmp_path / "trial"):
            raise ZeroDivisionError

    def test_what_cannot_start_says_why(
        self, engine: Engine, bad: LaunchConfig | None, tmp_path: Path
    ) -> None:
        if bad is None:
            pytest.skip("this engine has no configuration that fails cheaply")
        with pytest.raises(LaunchFailure) as caught:
            engine.launch(bad, tmp_path / "trial")
        assert isinstance(caught.value.kind, FailureKind)
        assert caught.value.cause.strip()
        assert caught.value.seconds >= 0

    def test_closing_twice(self, engine: Engine) -> None:
        engine.close()
        engine.close()
