"""The problems of the search benchmark are what they say: effects bite, truth is kept, crashes happen."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from search_parts import best as best_module  # noqa: E402
from search_parts.best import LEAST_LOSS, Hunt, best_of  # noqa: E402
from search_parts.developing import DEVELOPING  # noqa: E402
from search_parts.engine import P99_NOISE, THROUGHPUT_NOISE, TrueEngine  # noqa: E402
from search_parts.keeper import Keeper  # noqa: E402
from search_parts.longrun import DRAWS, LongRun, turned  # noqa: E402
from search_parts.methods import METHODS, Method  # noqa: E402
from search_parts.problem import Problem  # noqa: E402
from search_parts.score import Score, worth  # noqa: E402
from search_parts.truth import FINE, REQUESTS, Scale  # noqa: E402

from tuner.engines.base import LaunchFailure  # noqa: E402
from tuner.engines.simulated.prefixes import no_prefixes, prefixes_of  # noqa: E402
from tuner.engines.simulated.scheduler import Simulation  # noqa: E402
from tuner.measure import Judgement  # noqa: E402
from tuner.measure.loadtest import LoadTest  # noqa: E402
from tuner.replay import Workload  # noqa: E402
from tuner.space import LaunchConfig  # noqa: E402
from tuner.study import split  # noqa: E402

PARTS = HERE / "search_parts"
every = pytest.mark.parametrize("problem", DEVELOPING, ids=lambda p: str(p.number))


def _reference() -> ModuleType:
    path = HERE.parent / "engines" / "simulated" / "reference.py"
    spec = importlib.util.spec_from_file_location("token_by_token", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@every
def test_the_kept_best_belongs_to_the_problem(problem: Problem) -> None:
    kept = best_module.kept(problem)
    assert kept is not None and kept.digest == problem.digest(), "run python -m search_parts.best"
    assert kept.rps >= 1.1 * kept.default_rps
    assert kept.crashed > 0.0
    assert {b.effect for b in kept.bites} == {type(e).__name__.lower() for e in problem.hidden.effects}
    assert len(kept.bites) == 3


def test_some_points_are_refused_by_arithmetic_alone() -> None:
    assert any(best_of(problem).refused > 0.05 for problem in DEVELOPING)


@every
def test_who_ignores_an_effect_loses_a_tenth(problem: Problem) -> None:
    kept, scale = best_of(problem), Scale(problem)
    assert scale.keeps(LaunchConfig.of(kept.flags), kept.rps)
    for bite in kept.bites:
        effect = next(e for e in problem.hidden.effects if type(e).__name__.lower() == bite.effect)
        chosen = LaunchConfig.of(bite.flags)
        assert Scale(problem, problem.hidden.without(effect)).keeps(chosen, 0.97 * kept.rps)
        assert bite.loss >= LEAST_LOSS
        assert scale.capacity(chosen, beat=(1.0 - LEAST_LOSS) * kept.rps) == 0.0


@pytest.mark.parametrize("problem", [DEVELOPING[0], DEVELOPING[2], DEVELOPING[4]], ids=lambda p: p.title)
def test_the_truth_is_that_of_a_token_by_token_scheduler(problem: Problem) -> None:
    reference = _reference()
    loads = LoadTest(split(problem.trace).finals, problem.slo, requests=60)
    part = loads.loads.at(2.0 * max(best_of(problem).rps, 0.5)).take(np.arange(60))
    # the token-by-token scheduler knows no cache on the host
    best = {name: value for name, value in best_of(problem).flags.items() if name != "swap-space"}
    for flags in (best, {**best, "max-num-seqs": 16}):
        limits, steps, _ = problem.truth.start(LaunchConfig.of(flags))
        arrivals = part.arrival_s.tolist()
        prompts, answers = part.input_tokens.tolist(), part.output_tokens.tolist()
        names = [
            reference.block_names(i, p, a, part.blocks_of(i).tolist(), part.block_tokens, limits.block_size)
            for i, (p, a) in enumerate(zip(prompts, answers, strict=True))
        ]
        first, last, _ = reference.simulate(limits, steps, arrivals, prompts, answers, names=names)
        prefixes = prefixes_of(part, limits.block_size) if limits.prefix_caching else no_prefixes(len(part))
        fast = Simulation(limits, steps, prefixes, arrivals, prompts, answers).run()
        np.testing.assert_allclose(fast.first_s, first, rtol=0, atol=1e-6)
        np.testing.assert_allclose(fast.last_s, last, rtol=0, atol=1e-6)


def test_a_launch_draws_its_own_noise_and_the_same_again() -> None:
    problem = DEVELOPING[0]
    trace = LoadTest(split(problem.trace).finals, problem.slo, requests=120).loads.at(2.0)
    alone = Workload(trace.take(np.arange(1)))
    loaded = Workload(trace)

    def seen(seed: int | None, launches: int) -> list[tuple[float, ...]]:
        engine = TrueEngine(problem.truth, seed)
        found = []
        for _ in range(launches):
            server = engine.launch(LaunchConfig(), Path())
            found.append(tuple(float(server.replay(w).e2e_s().max()) for w in (alone, alone, loaded)))
        return found

    assert seen(3, 2) == seen(3, 2) != seen(4, 2)
    assert len(set(seen(None, 2))) == 1
    exact = seen(None, 1)[0][0]
    logs = np.log(np.array([row[:2] for row in seen(5, 150)]) / exact)
    assert np.std(logs[:, 0] - logs[:, 1]) / np.sqrt(2) == pytest.approx(P99_NOISE, rel=0.25)
    common = np.cov(logs[:, 0], logs[:, 1])[0, 1]
    assert np.sqrt(common) == pytest.approx(THROUGHPUT_NOISE, rel=0.35)


@every
def test_some_crashes_are_seen_only_by_launching(problem: Problem) -> None:
    engine, rules, best = TrueEngine(problem.truth, 1), problem.rules(), best_of(problem).flags
    for batched in (8192, 16384, 32768):
        config = LaunchConfig.of({**best, "gpu-memory-utilization": 0.96, "max-num-batched-tokens": batched})
        if rules.check(config) is None:
            try:
                engine.launch(config, Path())
            except LaunchFailure:
                return
    pytest.fail("nothing crashed that arithmetic allows")


def test_the_truth_shares_no_step_time_with_the_guide() -> None:
    forbidden = {"steptime", "coefficients", "setup", "engine", "server", "predictor"}
    for path in PARTS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tuner.engines.simulated"):
                assert not forbidden & set((node.module or "").split(".")), path.name


def test_a_trace_turned_round_is_the_same_traffic_from_another_place_on() -> None:
    trace = split(DEVELOPING[3].trace).finals
    first = round(len(trace) / 4)
    other = turned(trace, 0.25)
    np.testing.assert_array_equal(other.input_tokens, np.roll(trace.input_tokens, -first))
    assert other.arrival_s[0] == 0.0 and np.all(np.diff(other.arrival_s) >= 0.0)
    gaps = np.diff(trace.arrival_s)
    np.testing.assert_allclose(np.diff(other.arrival_s)[: len(gaps) - first], gaps[first:])
    for i in (0, len(trace) - first, len(trace) - 1):
        np.testing.assert_array_equal(other.blocks_of(i), trace.blocks_of((i + first) % len(trace)))


def test_the_long_run_is_none_of_the_draws_that_a_study_or_the_truth_sees() -> None:
    problem = DEVELOPING[4]
    rps, held_out = best_of(problem).rps, split(problem.trace).finals
    own = [LoadTest(held_out, problem.slo, requests=400, seed=s).loads.at(rps).digest() for s in range(3)]
    run = [(trace, counted) for trace, counted in LongRun(problem).draws(rps)]
    assert len({trace.digest() for trace, _ in run} | set(own)) == DRAWS + len(own)
    for trace, counted in run:
        assert len(counted) >= REQUESTS and counted[-1] == len(trace) - 1
        assert trace.arrival_s[counted[0]] > problem.slo.largest_s()  # the server is warm
        assert len(counted) / rps >= 3.0 * problem.slo.largest_s() * 0.95


def test_an_export_that_one_draw_lets_pass_breaks_the_slo_where_the_long_run_does() -> None:
    problem = DEVELOPING[4]
    kept = best_of(problem)
    best = LaunchConfig.of(kept.flags)
    assert Scale(problem).keeps(best, kept.rps)
    at_its_most, with_room = worth(problem, best, kept.rps), worth(problem, best, 0.5 * kept.rps)
    assert at_its_most.share_of_slo > 1.0 and at_its_most.broken and at_its_most.regret == 1.0
    assert with_room.share_of_slo < 1.0 and not with_room.broken and with_room.regret == pytest.approx(0.0)
    assert at_its_most.true_rps == with_room.true_rps


class _Ran:
    """Stands for a search that takes minutes: says what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, int, int]] = []

    def __call__(self, problem: Problem, method: Method, launches: int, seed: int) -> Score:
        self.asked.append((problem.number, method.name, launches, seed))
        figures = {"regret": 0.1, "export_rps": 1.0, "true_rps": 1.0, "best_rps": 1.0, "engine_s": 9.0}
        counts = {"used": launches, "finals": 2, "crashes": 0, "foreseeable": 0}
        return Score(
            problem.number, method.name, launches, seed, broken=False, wall_s=1.0, **figures, **counts
        )


def test_processes_side_by_side_share_the_studies_of_a_file(tmp_path: Path) -> None:
    file, ran, beside = tmp_path / "studies.jsonl", _Ran(), _Ran()
    studies = [(problem, METHODS["random"], 8, 0) for problem in DEVELOPING[:3]]
    one, other = Keeper(file, search=ran), Keeper(file, search=beside)
    one.score(studies[0])
    other.score(studies[2])
    for keeper in (one, other):
        assert [keeper.score(study).problem for study in studies] == [1, 2, 3]
    assert ran.asked == [(1, "random", 8, 0), (2, "random", 8, 0)] and beside.asked == [(3, "random", 8, 0)]


def test_a_study_that_was_cut_off_while_it_was_written_is_run_again(tmp_path: Path) -> None:
    file, ran = tmp_path / "studies.jsonl", _Ran()
    studies = [(problem, METHODS["random"], 8, 0) for problem in DEVELOPING[:2]]
    for study in studies:
        Keeper(file, search=_Ran()).score(study)
    file.write_bytes(file.read_bytes()[:-30])
    keeper = Keeper(file, search=ran)
    assert [keeper.holds(study) for study in studies] == [True, False]
    keeper.score(studies[1])
    assert ran.asked == [(2, "random", 8, 0)]
    after = Keeper(file, again=["tpe"], search=ran)
    assert all(after.holds(study) for study in studies)
    assert not any(Keeper(file, again=["random"]).holds(study) for study in studies)


def test_a_bracket_begins_above_a_lull_that_looked_like_a_queue() -> None:
    scale = Scale(DEVELOPING[0])

    class _Lull:
        """Stands for a server whose backlog seems to grow at one load well below what it carries."""

        def __init__(self, lull: int, most: int) -> None:
            self.lull, self.most = lull, most

        def judge(self, server: object, rps: float) -> Judgement:
            step = round(np.log(rps / scale.load(0)) / np.log(FINE))
            fine = step != self.lull and step <= self.most
            return SimpleNamespace(margin=-0.5 if fine else 0.5, unstable=not fine)  # type: ignore[return-value]

    for lull in (0, 16, 32):
        scale._judge = _Lull(lull, 100).judge  # type: ignore[method-assign]
        assert scale._search(None, 0.0) == pytest.approx(scale.load(100))
    scale._judge = _Lull(500, -70).judge  # type: ignore[method-assign]
    assert scale._search(None, 0.0) == pytest.approx(scale.load(-70))


def test_the_best_point_is_weighed_as_an_export_is() -> None:
    problem = DEVELOPING[4]
    hunt = Hunt(problem, Scale(problem), 1)
    default = hunt.best

    def capacity(config: LaunchConfig, beat: float = 0.0) -> float:
        return 10.0 * hunt.rps if beat else worth_rps

    hunt.scale.capacity = capacity  # type: ignore[method-assign]
    worth_rps = 0.5 * hunt.rps
    assert (
        hunt.offer({**default, "stream-interval": 16}) and hunt.best == default
    )  # it beat the best at high loads only
    worth_rps = 2.0 * hunt.rps
    assert hunt.offer({**default, "stream-interval": 4}) and hunt.rps == worth_rps


def test_sealed_problems_stay_sealed() -> None:
    for asked in ("sealed", "7"):
        done = subprocess.run(
            [sys.executable, str(HERE / "search.py"), "--problems", asked, "--methods", "random"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1 and "sealed" in done.stderr
