"""The finals on an engine that is never twice the same: A B D, then D B A, and what can be said of it."""

from __future__ import annotations

import math

import numpy as np

from tuner.measure import STEP, Capacity, Judgement, Probe, achieved, finite
from tuner.profiles.evidence import Drift, FinalRow
from tuner.spec import LoadMode
from tuner.study.accounts import spent_s
from tuner.study.bracket import around, common_steps, measure_around
from tuner.study.budget import MOST_FINAL_LAUNCHES, REPLAYS_A_FINAL, Costs, budget_left_s
from tuner.study.evidence import Keeper, Launched
from tuner.study.finalist import Figures, Finalist
from tuner.study.history import History
from tuner.study.stage import Finals, Stage
from tuner.study.standing import Contest, capacity_of, contest, margin_of
from tuner.study.trial import Session
from tuner.study.users import UserFigures, keep_rows

DRIFT_LIMIT = 0.1
"""More than this between two launches of the default is more than launches usually vary."""
_MORE_FIRST, _MORE_AGAIN = 5, 3
"""Replays beyond the first two of a launch, the first time and the second."""
_CHANCE = 0.2
"""Odds of being better than the best at which a contender is launched again."""
_NEAR = 3
"""Grid steps: an expected capacity further than this from the common loads gets a replay of its own."""


class Rounds:
    """Launches finalists in turn and keeps what they show."""

    def __init__(self, stage: Stage, contenders: list[Finalist], default: Finalist) -> None:
        self.stage = stage
        self.contenders = contenders
        self.default = default
        self.common = common_steps(stage.offer, [f.start for f in (*contenders, default)])
        self.more = _MORE_FIRST
        self._told = History(stage.study).launched()
        self._shown: set[int] = set()
        self._standing: Contest | None = None

    def standing(self) -> Contest:
        """Where all stand by what has been measured so far."""
        if self._standing is None:
            evidence = {f.label: [one.judged for one in f.launched] for f in (*self.contenders, self.default)}
            spec, rivals = self.stage.job.spec, len(self.contenders)
            self._standing = contest(evidence, "default", spec.slo, rivals=rivals, seed=spec.seed)
        return self._standing

    def show(self, finalist: Finalist) -> None:
        """One launch of a finalist; replays that an interrupted process made are not made again."""
        stage, slo = self.stage, self.stage.job.spec.slo
        again = any(one.judged for one in finalist.launched)
        first = self._first_steps(finalist)
        stage.next(finalist)
        self._standing = None
        keeper = Keeper(
            stage.place.finals_folder(stage.launches),
            f"{self._told} trials, {finalist.label}: {finalist.config.key()}",
        )
        launched = keeper.read(slo)
        finalist.launched.append(launched)

        def measure(session: Session) -> Capacity:
            launched.facts = session.facts

            def judge(load: float) -> Judgement:
                if load not in launched.judged:
                    judgement = session.judge(stage.offer, load)
                    launched.add(load, judgement)
                    keeper.replayed(launched, load, judgement.replay)
                return launched.judged.get(load) or launched.invalid[-1][1]

            more = min(_MORE_AGAIN, self.more) if again else self.more - (len(first) - 2)
            measure_around(stage.offer, judge, first, more=more)
            capacity = _capacity(launched)
            stage.bench.observer.final_finished(finalist.label, capacity)
            if not again and launched.users is None:
                launched.users = self._users(finalist, session, capacity)
            return capacity

        if launched.done:
            if launched.failure is None:
                stage.bench.observer.final_finished(finalist.label, _capacity(launched))
        else:
            launched.failure = stage.launch(finalist, measure).failure
            launched.done = True
            keeper.write(launched)
        if launched.users is not None:
            finalist.users = launched.users
            if finalist is not self.default:
                self._shown = set(launched.users.rows)

    def _first_steps(self, finalist: Finalist) -> tuple[int, ...]:
        """The common loads, and the finalist's own where those are far from it; on a later launch those
        beside the capacity that the earlier one showed."""
        grid = self.stage.offer.grid
        margins = {
            grid.step(load): margin_of(judgement)
            for one in finalist.launched
            for load, judgement in one.judged.items()
        }
        pair = around(margins) if margins else None
        if pair is None:
            own = self.stage.offer.grid.step(finalist.start)
            low, high = self.common
            between = low + _NEAR < own < high - _NEAR and self.more > 1
            return (low, own, high) if between else (low, high)
        low, high = pair
        at = low + (high - low) * -margins[low] / (margins[high] - margins[low])
        lower = [step for step in margins if step <= at - 1.0]
        return (max(lower, default=low), high)

    def _users(self, finalist: Finalist, session: Session, capacity: Capacity) -> UserFigures | None:
        """Count users on the default, a contender that leads so far, and its equals that change less."""
        rivals = [f for f in self.contenders if f is not finalist and f.launched]
        fewer = {f.label: len(finalist.changed) < len(f.changed) for f in rivals}
        leads = all(capacity.rps * (STEP if fewer[f.label] else 1.0) > _best(f) for f in rivals)
        if capacity.rps <= 0.0 or not (finalist is self.default or leads):
            return None
        users, tried = self.stage.most_users(session, capacity)
        figures = UserFigures(users)
        if finalist is self.default:
            least = min((n for n, judgement in tried.items() if not judgement.passes), default=0)
            for number in sorted(n for n in self._shown - tried.keys() if n < least):
                tried[number] = self.stage.offer.test.with_users(session.send, number)
        keep_rows(figures, tried)
        return figures


def rounds(stage: Stage, costs: Costs, contenders: list[Finalist], default: Finalist) -> Finals:
    """A B D, then D B A with what is left of the budget: drift hits all alike.

    The second round leaves out whoever failed, cannot beat the default any more, or is hardly the best. What
    it so leaves of the six launches goes to the best and the default, as long as they are undecided.
    """
    held = Rounds(stage, contenders, default)
    held.more = replays_beyond_two(stage, costs, len(contenders) + 1)
    for finalist in [*contenders, default]:
        held.show(finalist)
    race = _race(held, MOST_FINAL_LAUNCHES - stage.launches - 1)
    if race:
        second = [default, *reversed(race)] if default.failure is None else list(reversed(race))
        stage.total = min(MOST_FINAL_LAUNCHES, stage.launches + len(second))
        for finalist in second:
            if not stage.affordable(costs):
                break
            held.show(finalist)
        while stage.affordable(costs) and (again := _undecided(held)) is not None:
            held.show(again)
    return _conclusion(held)


def replays_beyond_two(stage: Stage, costs: Costs, launches: int) -> int:
    """How many replays beyond the first two a launch of the first round may make within the budget."""
    left_s = budget_left_s(stage.job.spec.budget, spent_s(stage.study))
    return max(min(costs.replays_of(left_s / launches) - REPLAYS_A_FINAL + _MORE_FIRST, _MORE_FIRST), 1)


def _undecided(held: Rounds) -> Finalist | None:
    """Who is launched once more to tell whether the best beats the default: the one seen less often."""
    now, default = held.standing(), held.default
    best = next(iter(_able(held, now)), None)
    if best is None or default.failure is not None or len(best.launched) < 2:
        return None
    interval = now.gain_interval(best.label)
    if interval is None or not 1.0 / STEP < interval[0] <= 1.0:
        return None  # it is proven, or no launch more would prove it
    return best if len(best.launched) <= len(default.launched) else default


def _race(held: Rounds, most: int) -> list[Finalist]:
    """Contenders that can still win, in their order; the best of them where there is no room for all."""
    now = held.standing()
    able = _able(held, now)
    best, kept = able[0] if able else None, []
    able.sort(key=lambda f: f is not best and not (best and _fewer(now, f, best)))
    for finalist in able:
        over_default = now.gain_interval(finalist.label)
        hopeful = over_default is None or over_default[1] > STEP
        likely = finalist is best or (best is not None and _worth(now, finalist, best))
        if hopeful and likely:
            kept.append(finalist)
    return [f for f in held.contenders if f in kept[: max(most, 0)]]


def _conclusion(held: Rounds) -> Finals:
    """Of those that surely beat the default the best, or of its equals the one that changes least."""
    now, default = held.standing(), held.default
    for finalist in (*held.contenders, default):
        finalist.figures = figures(held.stage, now, finalist)
        if held.stage.job.spec.load is LoadMode.RATE and finalist.label in now.standings:
            finalist.half_slo = now.standings[finalist.label].capacity_at(0.5)
    winners = [f for f in held.contenders if f.failure is None and now.beats_default(f.label)]
    winners.sort(key=lambda f: -now.standings[f.label].capacity)
    best = winners[0] if winners else None
    tied = [f for f in winners[1:] if best is not None and _equal(now, f, best)]
    winner: Finalist | None = None
    if best is not None:
        winner = min([best, *tied], key=lambda f: (len(f.changed), -now.standings[f.label].capacity))
        tied = [f for f in (best, *tied) if f is not winner]
    elif now.sure_load(default.label) > 0.0:
        winner = default
    said = winner if best is not None else _leading(now, held.contenders)
    return Finals(
        default,
        winner,
        held.stage.offer,
        gain=now.gain(winner.label) if winner is not None else None,
        gain_interval=now.gain_interval(said.label) if said is not None else None,
        rows=_rows(held),
        drift=_drift(now, default.label),
        tied=tuple(tied),
    )


def _equal(now: Contest, one: Finalist, best: Finalist) -> bool:
    """Whether two cannot be told apart: less than a grid step lies between, and the interval has 1."""
    ratio, interval = now.gain(one.label, best.label), now.gain_interval(one.label, best.label)
    return ratio is not None and interval is not None and interval[1] >= 1.0 and ratio * STEP >= 1.0


def _able(held: Rounds, now: Contest) -> list[Finalist]:
    """Contenders that carry some load for sure, the best first."""
    able = [f for f in held.contenders if f.failure is None and now.sure_load(f.label) > 0.0]
    return sorted(able, key=lambda f: -now.standings[f.label].capacity)


def _worth(now: Contest, one: Finalist, best: Finalist) -> bool:
    """Whether one may be better than the best, or would be deployed in its place."""
    return now.odds(one.label, best.label) > _CHANCE or _fewer(now, one, best)


def _fewer(now: Contest, one: Finalist, best: Finalist) -> bool:
    """Whether one would be deployed rather than the best, which it equals with fewer flags."""
    return len(one.changed) < len(best.changed) and _equal(now, one, best)


def _leading(now: Contest, contenders: list[Finalist]) -> Finalist | None:
    """The contender with the highest capacity, for what is said where the defaults are kept."""
    able = [f for f in contenders if now.gain(f.label)]
    return max(able, key=lambda f: now.standings[f.label].capacity, default=None)


def figures(stage: Stage, now: Contest, finalist: Finalist) -> Figures | None:
    """What a finalist surely carries, and how it is there; None where it carries nothing."""
    load = now.sure_load(finalist.label)
    if stage.job.spec.load is LoadMode.USERS:
        load = float(math.floor(load))
    if load <= 0.0:
        return None
    standing = now.standings[finalist.label]
    limit_s = stage.job.spec.slo.limits()[standing.metric]
    p99_s, (low_s, high_s) = now.p99_at(finalist.label, load, limit_s)
    near = min(standing.loads, key=lambda at: abs(math.log(at / load)))
    judged = [one.judged[near] for one in finalist.launched if near in one.judged]
    reached = [achieved(j.replay) for j in judged]
    share = load / near
    latency = np.concatenate([j.replay.e2e_s()[j.replay.ok] for j in judged])
    users = stage.job.spec.load is LoadMode.USERS
    return Figures(
        load=load,
        throughput_rps=float(np.mean([r[0] for r in reached])) * share if users else load,
        output_tps=float(np.mean([r[1] for r in reached])) * share,
        p99_s=finite(p99_s),
        p99_interval_s=(finite(low_s), finite(high_s)),
        mean_s=finite(float(latency.mean())) if len(latency) else None,
    )


def _capacity(launched: Launched) -> Capacity:
    """One launch's capacity, between the loads that it was replayed at."""
    loads = sorted(launched.judged)
    if not loads:
        return Capacity(0.0, (0.0, math.inf), launched.invalid[-1][1], ())
    margins = [margin_of(launched.judged[load]) for load in loads]
    probes = tuple(Probe(load, margin <= 0.0, margin) for load, margin in zip(loads, margins, strict=True))
    if min(margins) > 0.0:
        return Capacity(0.0, (0.0, loads[0]), launched.judged[loads[0]], probes)
    rps = capacity_of(launched.judged)
    over = [load for load, margin in zip(loads, margins, strict=True) if margin > 0.0]
    within = [load for load in loads if not over or load < over[0]]
    at = within[-1] if within else loads[0]
    return Capacity(rps, (at, over[0] if over else math.inf), launched.judged[at], probes)


def _best(finalist: Finalist) -> float:
    return max((_capacity(one).rps for one in finalist.launched if one.judged), default=0.0)


def _rows(held: Rounds) -> tuple[FinalRow, ...]:
    """Every replay of the finals, those that prove nothing too. All launches are plain."""
    rows = []
    for finalist in (*held.contenders, held.default):
        for number, one in enumerate(finalist.launched, 1):
            for load, judgement in sorted([*one.judged.items(), *one.invalid], key=lambda pair: pair[0]):
                low, high = judgement.interval_s
                rows.append(
                    FinalRow(
                        finalist.label,
                        number,
                        load,
                        finite(judgement.p99_s),
                        (finite(low), finite(high)),
                        judgement.verdict.value,
                        plain=True,
                    )
                )
    return tuple(rows)


def _drift(now: Contest, label: str) -> Drift | None:
    """How far the default's launches lie apart."""
    standing = now.standings.get(label)
    if standing is None or not standing.deviations:
        return None
    loads = tuple(standing.capacity * math.exp(off) for off in standing.deviations)
    return Drift(loads, math.exp(max(standing.deviations) - min(standing.deviations)) - 1.0, DRIFT_LIMIT)
