"""The finals on an engine that is noisy, as real ones are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from toy import DEFAULTS, ToyEngine, Watcher, make_job, truth_rps

from tuner.engines.base import FailureKind, LaunchFailure
from tuner.measure import Judgement
from tuner.profiles import load_profile
from tuner.space.config import LaunchConfig
from tuner.study import StudyPlace, profile_path, tune
from tuner.study.evidence import Launched
from tuner.study.finalist import Finalist, best_of
from tuner.study.rounds import Rounds
from tuner.study.trial import Run
from tuner.study.users import table_numbers

TWO = {"a": 1, "b": 2}


def noisy(**more: object) -> ToyEngine:
    return ToyEngine(deterministic=False, spread=0.02, name="vllm", **more)  # type: ignore[arg-type]


def test_finalists_are_interleaved_with_the_default_within_six_launches(place: StudyPlace) -> None:
    engine, watcher = noisy(), Watcher()
    result = tune(make_job(engine, trials=9), place, watcher)
    labels = [label for label, *_ in watcher.of("final_started")]
    assert labels[:3] == ["A", "B", "default"] and labels[3] == "default"
    assert len(labels) <= 6 and len(engine.launched) == 9 + len(labels)
    assert result.recommendation == "tuned" and result.profile is not None
    assert result.profile.provenance == "measured"
    assert result.winner is not None
    assert truth_rps({**DEFAULTS, **result.winner.flags}) > truth_rps(DEFAULTS)
    assert any(r.default_p99_s and r.tuned_p99_s for r in result.users_table)
    assert result.winner.users >= result.baseline.users > 0


def test_a_noisy_engine_with_nothing_to_gain_keeps_the_default(place: StudyPlace) -> None:
    engine = noisy(speed=lambda flags: 2.0)
    assert tune(make_job(engine, trials=4), place, Watcher()).recommendation == "default"


def test_a_finalist_that_crashes_does_not_win(place: StudyPlace) -> None:
    def crash(count: int) -> None:
        if count > 4 and engine.launched[-1]:
            raise LaunchFailure(FailureKind.OOM, "out of memory", seconds=9.0)

    engine = ToyEngine(before_launch=crash)
    result = tune(make_job(engine, trials=4), place, Watcher())
    assert result.recommendation == "default" and result.gain == 1.0


def test_a_machine_at_fault_in_the_finals_is_waited_out(place: StudyPlace) -> None:
    def busy(count: int) -> None:
        if count == 5:
            raise LaunchFailure(FailureKind.GPU_BUSY, "busy", seconds=1.0)

    engine = ToyEngine(before_launch=busy)
    result = tune(make_job(engine, trials=4), place, Watcher())
    assert result.launches == len(engine.launched) and result.recommendation == "tuned"


@pytest.mark.parametrize("carried", [1.0, 1.05, 1.0499999])
def test_one_step_more_is_not_better(carried: float) -> None:
    assert best_of([finalist("A", carried)], finalist("default", 1.0)).label == "default"  # type: ignore[union-attr]


def test_the_best_wins_and_of_equals_the_one_that_changes_less() -> None:
    default = finalist("default", 1.0)
    more, less = finalist("A", 1.3, {"a": 1, "b": 2}), finalist("B", 1.3, {"a": 1})
    assert best_of([more, less], default) is less
    assert best_of([finalist("A", 1.2), finalist("B", 1.4)], default).load == 1.4  # type: ignore[union-attr]
    assert best_of([], finalist("default", 0.0)) is None
    assert best_of([finalist("A", 0.2)], finalist("default", 0.0)).label == "A"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rps", "changed", "counted"),
    [(1.4, TWO, True), (1.3, TWO, False), (1.3, {"a": 1}, True), (1.2, {}, False)],
)
def test_users_are_counted_on_whoever_may_be_deployed(
    rps: float, changed: dict[str, int], counted: bool
) -> None:
    """The leader, or one that changes less and lies within a step of the leader's 1.33."""
    leader, late = finalist("A", 1.3, TWO), finalist("B", rps, changed)
    leader.launched.append(Launched({1.3: judged(1.3, True), 1.365: judged(1.365, False)}))
    held = Rounds.__new__(Rounds)
    held.contenders, held.default, held._shown = [leader, late], finalist("default", 1.0), set()
    held.stage = SimpleNamespace(most_users=lambda session, capacity: (7, {}))  # type: ignore[assignment]
    figures = held._users(late, None, Carries(rps))  # type: ignore[arg-type]
    assert (figures is not None and figures.users == 7) if counted else figures is None


def judged(rps: float, passes: bool) -> Judgement:
    return SimpleNamespace(passes=passes, margin=-0.1 if passes else 0.1, unstable=False, offered_rps=rps)  # type: ignore[return-value]


def test_numbers_of_the_users_table() -> None:
    assert table_numbers(50)[:7] == (10, 20, 50, 100, 200, 500, 1000)
    assert table_numbers(3)[:4] == (1, 2, 5, 10)


class Carries:
    def __init__(self, rps: float) -> None:
        self.rps = rps


def finalist(label: str, rps: float, changed: dict[str, int] | None = None) -> Finalist:
    run = Run(LaunchConfig(), capacity=Carries(rps))  # type: ignore[arg-type]
    return Finalist(label, LaunchConfig(), 1.0, changed or {}, [run])


def test_the_finals_are_launched_plainly(place: StudyPlace) -> None:
    """Servers of the search may be forked; what is confirmed is started as it will be deployed."""

    class Warm(ToyEngine):
        plain_from: int | None = None

        def plainly(self) -> Warm:
            assert self.plain_from is None
            self.plain_from = len(self.launched)
            return self

    engine, watcher = Warm(deterministic=False, spread=0.02, name="vllm"), Watcher()
    result = tune(make_job(engine, trials=5), place, watcher)
    finals = len(watcher.of("final_started"))
    assert finals >= 3 and engine.plain_from == len(engine.launched) - finals == 5
    assert result.winner is not None and result.winner.flags in engine.launched[engine.plain_from :]
    shown = [f"--{flag}={value}" for flag, value in result.winner.flags.items()]
    assert list(result.winner.command) == ["vllm", "serve", "toy", *shown]


def shown(watcher: Watcher) -> list[str]:
    return [label for label, *_ in watcher.of("final_started")]


def test_a_default_that_does_not_start_in_the_finals_is_no_rival(place: StudyPlace) -> None:
    def crash(count: int) -> None:
        if count > 6 and not engine.launched[-1]:
            raise LaunchFailure(FailureKind.OOM, "out of memory", seconds=9.0)

    engine = noisy(before_launch=crash)
    result = tune(make_job(engine, trials=6), place, Watcher())
    assert result.recommendation == "tuned" and result.gain is None
    assert "does not start: out of memory" in result.baseline.note


def test_a_finalist_that_crashes_at_its_second_launch_does_not_win(place: StudyPlace) -> None:
    def crash(count: int) -> None:
        if count > 6 + 4 and engine.launched[-1]:
            raise LaunchFailure(FailureKind.OOM, "out of memory", seconds=9.0)

    engine = noisy(before_launch=crash)
    result = tune(make_job(engine, trials=6), place, Watcher())
    assert (
        result.recommendation == "default"
        or not any(
            config == result.winner.flags  # type: ignore[union-attr]
            for config in engine.launched[10:]
        )
    )


def test_a_budget_that_ends_in_the_finals_leaves_the_first_round(place: StudyPlace) -> None:
    watcher = Watcher()
    result = tune(make_job(noisy(), trials=9, engine_s=9000.0), place, watcher)
    assert 3 <= len(shown(watcher)) <= 6 and result.profile is not None
    assert result.profile.gain_interval is not None


def test_finals_go_on_where_they_were_interrupted(place: StudyPlace) -> None:
    """What was replayed is not replayed again, and a launch that was over is not made again."""

    def stop(count: int) -> None:
        if count == 8:
            raise KeyboardInterrupt

    engine = noisy(before_launch=stop)
    with pytest.raises(KeyboardInterrupt):
        tune(make_job(engine, trials=6), place, Watcher())
    assert (place.finals_folder(1) / "evidence.json").exists()
    engine.before_launch, before = lambda _: None, len(engine.launched)
    watcher = Watcher()
    result = tune(make_job(engine, trials=6), place, watcher)
    assert len(engine.launched) - before == len(shown(watcher)) - 1
    assert result.launches == len(engine.launched)


def test_what_stands_behind_a_recommendation_is_in_the_profile(place: StudyPlace) -> None:
    result = tune(make_job(noisy(), trials=9), place, Watcher())
    profile = result.profile
    assert profile is not None and profile.gain_interval is not None and profile.gain is not None
    assert 1.0 < profile.gain_interval[0] < profile.gain < profile.gain_interval[1]
    assert {row.label for row in profile.finals} >= {"A", "default"}
    assert all(row.plain for row in profile.finals)
    assert profile.drift is not None and len(profile.drift.loads_rps) == 2
    assert profile.winner.p99_interval_s[1] == pytest.approx(30.0, rel=1e-3)
    assert load_profile(profile_path("toy", place.root)) == profile
