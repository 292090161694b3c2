"""How engine time is shared between the search and the finals."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyEngine, Watcher, make_job

from tuner.spec import Budget
from tuner.study import StudyPlace, tune
from tuner.study.budget import Costs, allows_final, allows_trial, kept_back_s, trials_within
from tuner.study.plan import make_plan

SECONDS = st.floats(1.0, 1e5)


@given(engine_s=SECONDS, launch_s=SECONDS, replay_s=SECONDS, trials=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_half_of_a_budget_is_the_searchs(
    engine_s: float, launch_s: float, replay_s: float, trials: int
) -> None:
    budget, costs = Budget(trials, engine_s), Costs(launch_s, replay_s)
    assert kept_back_s(budget, costs) <= engine_s / 2.0
    assert allows_trial(budget, costs, 0, 0.49 * engine_s)
    launched, spent = 0, 0.0
    while allows_trial(budget, costs, launched, spent):
        launched, spent = launched + 1, spent + costs.trials_s(1)
    assert launched == trials_within(budget, costs) >= 1


def test_without_engine_time_nothing_is_scarce() -> None:
    costs = Costs(60.0, 20.0)
    assert trials_within(Budget(16), costs) == 16 and allows_final(Budget(16), costs, 1e9)


def noisy() -> ToyEngine:
    return ToyEngine(deterministic=False, spread=0.02, name="vllm")


def test_a_short_budget_still_searches_and_compares(place: StudyPlace) -> None:
    """Three finals of seven replays would take more than all of it."""
    watcher, budget_s = Watcher(), 4000.0
    result = tune(make_job(noisy(), trials=50, engine_s=budget_s), place, watcher)
    replay_s = 240.0
    assert Costs(40.0, replay_s).finals_s() > budget_s
    assert sum(result.trials.values()) >= 3
    labels = [label for label, *_ in watcher.of("final_started")]
    assert {"A", "default"} <= set(labels)
    assert result.engine_seconds < 1.5 * budget_s


def test_the_plan_says_how_many_launches_a_budget_holds(place: StudyPlace) -> None:
    engine = noisy()
    plan = make_plan(make_job(engine, trials=50, engine_s=9000.0), place)
    assert plan.budget_s == 9000.0 and plan.budget_trials is not None and 1 <= plan.budget_trials < 50
    assert make_plan(make_job(engine, trials=5), place).budget_trials == 5
