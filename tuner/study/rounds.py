"""The finals on an engine that is never twice the same: A B D, then D B A, and what can be said of it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tuner.measure import STEP, Capacity, Judgement, Probe, achieved, finite
from tuner.profiles.evidence import Drift, FinalRow
from tuner.spec import LoadMode
from tuner.study.bracket import around, common_steps, measure_around
from tuner.study.budget import MOST_FINAL_LAUNCHES, Costs
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


class Rounds:
    """Launches finalists in turn and keeps what they show."""

    def __init__(self, stage: Stage, contenders: list[Finalist], default: Finalist) -> None:
        self.stage = stage
        self.contenders = contenders
        self.default = default
        self.common = common_steps(stage.offer, [f.start for f in (*contenders, default)])
        self._told = History(stage.study).launched()
        self._shown: set[int] = set()

    def standing(self) -> Contest:
        """Where all stand by what has been measured so far."""
        evidence = {f.label: [one.judged for one in f.launched] for f in (*self.contenders, self.default)}
        spec = self.stage.job.spec
        return contest(evidence, "default", spec.slo, rivals=len(self.contenders), seed=spec.seed)

    def show(self, finalist: Finalist) -> None:
        """One launch of a finalist; replays that an interrupted process made are not made again."""
        stage, slo = self.stage, self.stage.job.spec.slo
        again = any(one.judged for one in finalist.launched)
        first = self._first_steps(finalist)
        stage.next(finalist)
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

            measure_around(stage.offer, judge, first, more=_MORE_AGAIN if again else _MORE_FIRST)
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

    def _first_steps(self, finalist: Finalist) -> Iterable[int]:
        """The common loads; on a later launch those beside the capacity that the earlier one showed."""
        grid = self.stage.offer.grid
        margins = {
            grid.step(load): margin_of(judgement)
            for one in finalist.launched
            for load, judgement in one.judged.items()
        }
        pair = around(margins) if margins else None
        if pair is None:
            return self.common
        low, high = pair
        at = low + (high - low) * -margins[low] / (margins[high] - margins[low])
        lower = [step for step in margins if step <= at - 1.0]
        return (max(lower, default=low), high)

    def _users(self, finalist: Finalist, session: Session, capacity: Capacity) -> UserFigures | None:
        """Count users on the default, and on contenders that lead so far."""
        rivals = [f for f in self.contenders if f is not finalist and f.launched]
        leads = all(capacity.rps > _best(f) for f in rivals)
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

    The second round leaves out whoever failed, cannot beat the default any more, or is surely behind another.
    """
    held = Rounds(stage, contenders, default)
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
    return _conclusion(held)


def _race(held: Rounds, most: int) -> list[Finalist]:
    """Contenders that can still win, in their order; the best of them where there is no room for all."""
    now = held.standing()
    able = [f for f in held.contenders if f.failure is None and now.sure_load(f.label) > 0.0]
    able.sort(key=lambda f: -now.standings[f.label].capacity)
    best, kept = able[0] if able else None, []
    able.sort(key=lambda f: f is not best and not (best and _fewer(now, f, best)))
    for finalist in able:
        over_default = now.gain_interval(finalist.label)
        over_best = now.gain_interval(finalist.label, best.label) if best and finalist is not best else None
        if (over_default is None or over_default[1] > STEP) and (over_best is None or over_best[1] > 1.0):
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
