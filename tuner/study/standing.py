"""Where each finalist stands: its capacity, and how far that can be trusted.

Three things move a measured capacity, and each enters the intervals:

- the traffic: the P99 of a thousand requests rests on a few of them. Blocks of the trace's requests are drawn
  again, the same for all configurations and loads, so that what a burst did to all is no difference;
- the launch: the same flags started again give a few percent more or less, and a replay a little on top.
  The launches of all finalists together say how much; with two each that is little to go by, so it starts
  from what launches usually vary (`LAUNCH_SPREAD`, worth `PRIOR_LAUNCHES` observations), and the quantiles
  are those of Student's distribution. One whose launches differ far more than that, as where its P99 hardly
  rises with the load and noise moves its capacity far, says nothing about the others' launches and is judged
  by its own;
- the curve: between loads the logarithm of P99 is taken as linear in that of the load.

Two finalists are compared at the loads that both were sent, near their capacities: what a burst does to one
it does to the other there, request by request, while a capacity of its own moves with every burst.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.measure import Judgement, block_bootstrap, block_length, load_at_limit, nearest_rank
from tuner.spec import Slo
from tuner.traces.trace import F64

CONFIDENCE = 0.95
"""Of the gain's interval, over all finalists together."""
SURE = 0.99
"""That a finalist's P99 at its exported load is within the SLO, over all finalists together."""
LAUNCH_SPREAD = 0.035
"""Relative standard deviation of the capacity from launch to launch, before any is seen."""
PRIOR_LAUNCHES = 5
LEAST_SPREAD = 0.01
_OUT_OF_LINE = 3.0
"""Times the usual spread: a finalist whose launches differ more is judged by itself."""
MOST_MARGIN = math.log(2.0)
"""A P99 over twice the SLO says only that it is: the replay was stopped there."""
_GROWING = 0.05  # a queue that grew all along: over the SLO, had it gone on
_BESIDE, _NEAR = math.log(1.1), math.log(1.35)  # how far from two capacities a load still compares them
DRAWS = 2000

Replays = Mapping[float, Judgement]
"""One launch's valid replays by load."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One finalist. `draws` are logarithms of the capacity under redrawn traffic, `redrawn` the margins under
    the same, one row a load; `deviations` are logarithms of each launch's capacity against the mean of all;
    `capacity` is 0 where even the lowest load is over the SLO.
    """

    loads: tuple[float, ...]
    margins: tuple[float, ...]
    capacity: float
    slope: float
    draws: F64
    redrawn: F64
    deviations: tuple[float, ...]
    launches: int
    metric: str

    @property
    def spread(self) -> float:
        """Standard deviation of the launches' log capacity by themselves; 0 of fewer than two."""
        squares = float(np.square(self.deviations).sum())
        return math.sqrt(squares / max(len(self.deviations) - 1, 1))

    def capacity_at(self, times: float) -> float | None:
        """Capacity at so many times the SLO; None where no load was replayed on both sides of that."""
        level = math.log(times)
        if not min(self.margins) <= level <= max(self.margins) or level >= MOST_MARGIN:
            return None
        return float(load_at_limit(np.array(self.loads), np.exp(np.array(self.margins) - level), 1.0))

    def margin_at(self, load: float) -> float:
        """log(P99 / SLO) at a load, on the line through the two loads beside it."""
        x, y = np.log(self.loads), np.maximum.accumulate(self.margins)
        if len(x) < 2:
            return float(y[0])
        right = int(np.clip(np.searchsorted(x, math.log(load)), 1, len(x) - 1))
        slope = (y[right] - y[right - 1]) / (x[right] - x[right - 1])
        return float(y[right] + slope * (math.log(load) - x[right]))


def stand(launches: Sequence[Replays], pooled: Mapping[float, Pooled]) -> Standing:
    """A finalist's standing by its launches, and its P99 at each load pooled over them."""
    loads = sorted(pooled)
    margins = [pooled[load].margin for load in loads]
    x = np.array(loads)
    found = float(load_at_limit(x, np.exp(np.array(margins)), 1.0))
    redrawn = np.stack([pooled[load].draws for load in loads])
    logs = np.log(load_at_limit(x, np.exp(redrawn.T), 1.0))
    slope = _slope(np.log(x), np.array(margins), math.log(found))
    return Standing(
        loads=tuple(loads),
        margins=tuple(margins),
        capacity=found if min(margins) <= 0.0 else 0.0,
        slope=slope,
        draws=logs - float(np.median(logs)) + math.log(found),
        redrawn=redrawn,
        deviations=_deviations(launches),
        launches=len(launches),
        metric=pooled[min(loads, key=lambda load: abs(pooled[load].margin))].metric,
    )


def margin_of(judgement: Judgement) -> float:
    """log(P99 / SLO) of one replay, as far as it says anything; a growing queue counts as over the SLO."""
    margin = min(judgement.margin, MOST_MARGIN)
    return max(margin, _GROWING) if judgement.unstable else margin


@dataclass(frozen=True, slots=True)
class Pooled:
    """log(P99 / SLO) over all repeats of one load, its draws, and the metric nearest to its limit."""

    margin: float
    draws: F64
    metric: str


def pool(everything: Sequence[Sequence[Judgement]], slo: Slo, *, seed: int) -> list[Pooled]:
    """Pool repeats, the same blocks drawn for all; each entry holds the repeats of one load."""
    limits = slo.limits()
    tables = [
        np.stack([judgement.replay.metric_s(metric) for judgement in repeats])
        for repeats in everything
        for metric in limits
    ]
    block = block_length(tables)
    drawn: dict[int, F64] = {}
    for n in sorted({table.shape[1] for table in tables}):
        alike = [index for index, table in enumerate(tables) if table.shape[1] == n]
        p99 = block_bootstrap([tables[i] for i in alike], block=block, draws=DRAWS, seed=seed)
        drawn |= {index: p99[:, column] for column, index in enumerate(alike)}
    found = []
    for row, repeats in enumerate(everything):
        growing = sum(judgement.unstable for judgement in repeats)
        floor = _GROWING if 2 * growing > len(repeats) else -math.inf
        margin, draws, nearest = floor, np.full(DRAWS, floor), next(iter(limits))
        highest = -math.inf
        for column, (metric, limit) in enumerate(limits.items()):
            index = row * len(limits) + column
            this = float(_log(nearest_rank(tables[index].ravel(), 0.99) / limit))
            if this > highest:
                highest, nearest = this, metric
            draws = np.maximum(draws, _log(drawn[index] / limit))
        found.append(Pooled(max(margin, highest), draws, nearest))
    return found


def _log(ratio: F64 | float) -> F64:
    return np.minimum(np.log(np.maximum(ratio, 1e-9)), MOST_MARGIN)


def _slope(x: F64, margins: F64, at: float) -> float:
    """How fast log P99 rises with the logarithm of the load, around a load; between 1 and 20."""
    if len(x) < 2:
        return 4.0
    y = np.maximum.accumulate(margins)
    right = int(np.clip(np.searchsorted(x, at), 1, len(x) - 1))
    return float(np.clip((y[right] - y[right - 1]) / (x[right] - x[right - 1]), 1.0, 20.0))


def _deviations(launches: Sequence[Replays]) -> tuple[float, ...]:
    """Each launch's capacity against the mean of them, as logarithms."""
    capacities = [math.log(found) for launch in launches if (found := capacity_of(launch)) > 0.0]
    if len(capacities) < 2:
        return ()
    return tuple(capacity - sum(capacities) / len(capacities) for capacity in capacities)


def capacity_of(launch: Replays) -> float:
    """One launch's own capacity; 0 where all of its loads are over the SLO."""
    loads = sorted(launch)
    margins = [margin_of(launch[load]) for load in loads]
    if min(margins, default=1.0) > 0.0:
        return 0.0
    return float(load_at_limit(np.array(loads), np.exp(margins), 1.0))


def _paired(one: Standing, other: Standing) -> F64 | None:
    """Draws of the logarithm of one capacity over another, by the P99 of both at the same loads; None where
    no such load is near.

    There one P99 lies over the other by what the capacities' ratio is worth on the slope of their curves.
    """
    if one.capacity <= 0.0 or other.capacity <= 0.0:
        return None
    ends = sorted((math.log(one.capacity), math.log(other.capacity)))
    rows: list[tuple[float, int, int]] = []
    for mine, load in enumerate(one.loads):
        if load not in other.loads:
            continue
        its = other.loads.index(load)
        if max(one.margins[mine], other.margins[its]) < MOST_MARGIN:
            away = max(ends[0] - math.log(load), math.log(load) - ends[1], 0.0)
            rows.append((away, mine, its))
    nearest = min((away for away, *_ in rows), default=math.inf)
    if nearest > _NEAR:
        return None
    kept = [(mine, its) for away, mine, its in rows if away <= max(_BESIDE, nearest)]
    over = np.mean([other.redrawn[its] - one.redrawn[mine] for mine, its in kept], axis=0)
    logs = over / (0.5 * (one.slope + other.slope))
    return np.asarray(logs - np.median(logs) + math.log(one.capacity / other.capacity), np.float64)


class Contest:
    """All finalists beside each other; `default` is one of them."""

    def __init__(self, standings: Mapping[str, Standing], default: str, *, rivals: int, seed: int) -> None:
        self.standings = dict(standings)
        self.default = default
        self._rivals = max(1, rivals)
        self._seed = seed

    @cached_property
    def alone(self) -> frozenset[str]:
        """Finalists whose launches are out of line with all others', as long as those are the fewer."""
        seen = {label: standing for label, standing in self.standings.items() if standing.deviations}
        out = {label for label, standing in seen.items() if standing.spread > _OUT_OF_LINE * LAUNCH_SPREAD}
        return frozenset(out) if 2 * len(out) <= len(seen) else frozenset()

    def spread(self, label: str) -> tuple[float, float]:
        """Standard deviation of log capacity from launch to launch, and its degrees of freedom."""
        alike = [label] if label in self.alone else self.standings.keys() - self.alone
        squares, freedom = PRIOR_LAUNCHES * LAUNCH_SPREAD**2, float(PRIOR_LAUNCHES)
        for deviations in (self.standings[one].deviations for one in sorted(alike)):
            if deviations:
                squares += float(np.square(deviations).sum())
                freedom += len(deviations) - 1
        return max(math.sqrt(squares / freedom), LEAST_SPREAD), freedom

    @cached_property
    def draws(self) -> dict[str, F64]:
        """Draws of the logarithm of each capacity, traffic and launches together."""
        return {label: standing.draws + self._launch[label] for label, standing in self.standings.items()}

    @cached_property
    def _launch(self) -> dict[str, F64]:
        """What of those draws is the launches'."""
        rng = np.random.default_rng([self._seed, 1])
        scales: dict[tuple[float, float], F64] = {}
        draws = {}
        for label, standing in self.standings.items():
            spread, freedom = self.spread(label)
            if (spread, freedom) not in scales:
                scales[spread, freedom] = spread * np.sqrt(freedom / rng.chisquare(freedom, DRAWS))
            launch = scales[spread, freedom] * rng.standard_normal(DRAWS)
            draws[label] = launch / math.sqrt(standing.launches)
        return draws

    def _ratio(self, label: str, over: str) -> F64:
        """Draws of the logarithm of one capacity over another."""
        one, other = self.standings[label], self.standings[over]
        traffic = _paired(one, other)
        if traffic is None:
            traffic = one.draws - other.draws
        return np.asarray(traffic + self._launch[label] - self._launch[over], np.float64)

    def odds(self, label: str, over: str) -> float:
        """How likely it is that one carries more than another."""
        return float((self._ratio(label, over) > 0.0).mean())

    def gain(self, label: str, over: str | None = None) -> float | None:
        """Capacity over that of another (the default); None where that carries nothing."""
        under = self.standings.get(over or self.default)
        if under is None or under.capacity <= 0.0 or label not in self.standings:
            return None
        return self.standings[label].capacity / under.capacity

    def gain_interval(self, label: str, over: str | None = None) -> tuple[float, float] | None:
        """Interval of that ratio, which holds for all finalists together (Bonferroni)."""
        if self.gain(label, over) is None:
            return None
        ratio = self._ratio(label, over or self.default)
        tail = (1.0 - CONFIDENCE) / 2.0 / self._rivals
        low, high = np.quantile(ratio, [tail, 1.0 - tail])
        return math.exp(low), math.exp(high)

    def beats_default(self, label: str) -> bool:
        """Whether the gain's interval is above nothing; over a default that carries nothing all is a gain."""
        interval = self.gain_interval(label)
        if interval is None:
            return self.sure_load(label) > 0.0
        return interval[0] > 1.0

    def sure_load(self, label: str) -> float:
        """The highest load at which the upper bound of the P99 is within the SLO; 0: none."""
        standing = self.standings.get(label)
        if standing is None or standing.capacity <= 0.0:
            return 0.0
        return math.exp(float(np.quantile(self.draws[label], (1.0 - SURE) / (self._rivals + 1))))

    def p99_at(self, label: str, load: float, limit_s: float) -> tuple[float, tuple[float, float]]:
        """P99 at a load in seconds, by the line between the loads measured, and its interval."""
        standing = self.standings[label]
        tail = (1.0 - SURE) / (self._rivals + 1)
        margins = standing.slope * (math.log(load) - self.draws[label])
        low, high = np.quantile(margins, [tail, 1.0 - tail])
        middle = standing.margin_at(load)
        return (
            limit_s * math.exp(middle),
            (limit_s * math.exp(min(low, middle)), limit_s * math.exp(max(high, middle))),
        )


def contest(
    evidence: Mapping[str, Sequence[Replays]], default: str, slo: Slo, *, rivals: int, seed: int = 0
) -> Contest:
    """Put the finalists beside each other.

    Args:
        evidence: each finalist's launches.
        default: the label of vLLM's defaults.
        slo: what a P99 is held against.
        rivals: how many finalists the intervals have to hold for together.
        seed: of the draws.
    """
    where: list[tuple[str, float]] = []
    everything: list[list[Judgement]] = []
    shown = {label: [one for one in launches if one] for label, launches in evidence.items()}
    for label, launches in shown.items():
        for load in sorted({load for launch in launches for load in launch}):
            where.append((label, load))
            everything.append([launch[load] for launch in launches if load in launch])
    if not everything:
        return Contest({}, default, rivals=rivals, seed=seed)
    pooled = dict(zip(where, pool(everything, slo, seed=seed), strict=True))
    standings = {
        label: stand(launches, {load: entry for (of, load), entry in pooled.items() if of == label})
        for label, launches in shown.items()
        if launches
    }
    return Contest(standings, default, rivals=rivals, seed=seed)
