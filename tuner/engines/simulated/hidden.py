"""What a real server does and no data sheet says: effects of single flags, believed by odds and learnt.

Each flag may hold back every step by a share of its time: a kernel that is slow at one block size, an
allocator that works above some share of the memory, a feature whose bookkeeping shows. Most flags hide
nothing, a few hide much, and the direction of what helps is known: less memory asked for, fewer and shorter
things held, larger blocks and chunks never slow a step down beyond what the simulator knows. So the prior of
a flag is a table of alternatives (nothing, or one of a few shapes at one of a few places and strengths),
sparse and one-sided, and the posterior is drawn by Gibbs sampling, one flag after the other (George and
McCulloch, "Variable selection via Gibbs sampling", JASA 1993).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.spec import FlagValue

Numbers = NDArray[np.float64]
Config = Mapping[str, FlagValue]

STRENGTHS = (0.06, 0.11, 0.18, 0.28, 0.45, 0.75)
"""Logs of a step's time, and how likely each is where a flag hides something."""
_WEIGHTS = (0.24, 0.26, 0.24, 0.15, 0.07, 0.04)
LAUNCH = 0.03
"""Standard deviation of the speed of one launch, as a log of time: the same flags again differ by so much."""
CHAINS = 160
_SWEEPS = 30
_RAMP = 0.03
_OCTAVES = 2.0

Curve = Callable[[Numbers], Numbers]
"""From the values of a flag to shares of the effect's strength."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How an effect goes with the value of its flag: curves that share `odds` evenly. `sign` -1 is a gain."""

    odds: float
    curves: tuple[Curve, ...]
    sign: float = 1.0


def _above(knee: float, width: float) -> Curve:
    return lambda x: np.clip((x - knee) / width, 0.0, 1.0)


def _over(knee: float, octaves: float) -> Curve:
    return lambda x: np.clip(np.log2(np.maximum(x, 1e-9) / knee) / octaves, 0.0, 1.0)


def _short_of(knee: float) -> Curve:
    return lambda x: 1.0 - np.minimum(x / knee, 1.0)


def _below(knee: float) -> Curve:
    return lambda x: (x < knee).astype(float)


def _on(x: Numbers) -> Numbers:
    return x


def _off(x: Numbers) -> Numbers:
    return 1.0 - x


def _each(x: Numbers) -> Numbers:
    return 1.0 / np.maximum(x, 1.0)


SHAPES: dict[str, tuple[Shape, ...]] = {
    "gpu-memory-utilization": (
        Shape(0.08, tuple(_above(k, _RAMP) for k in (0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.92, 0.94))),
    ),
    "max-num-seqs": (
        Shape(0.25, tuple(_over(k, 0.25) for k in (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768))),
    ),
    "max-num-batched-tokens": (
        Shape(0.15, tuple(_over(k, 1.0) for k in (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288))),
        Shape(0.15, tuple(_short_of(k) for k in (1024, 2048, 3072, 4096, 6144, 8192, 16384))),
    ),
    "block-size": (Shape(0.2, tuple(_below(k) for k in (24, 48, 96))),),
    "stream-interval": (Shape(0.25, (_each,)),),
    "enable-prefix-caching": (Shape(0.2, (_on,)),),
    "async-scheduling": (Shape(0.18, (_on,)), Shape(0.18, (_off,))),
}
"""What is known of a flag's direction; `max-model-len` and flags that are not here go by what the first
launch ran with. Where nothing says which side of a switch is the slow one, both are as likely."""
_LENGTH_ODDS = 0.15
_OTHER_ODDS = 0.04
_WORD_ODDS = 0.2
_ABSENT: dict[str, FlagValue] = {
    "stream-interval": 1,
    "async-scheduling": True,
    "enable-prefix-caching": True,
}
_KNOWN_ALREADY = frozenset({"kv-tokens"})


class Flag:
    """The alternatives of one flag: `weights` sum to one, the first is that it hides nothing."""

    def __init__(self, name: str, first: FlagValue | None) -> None:
        self._name = name
        self._first = _ABSENT.get(name) if first is None else first
        shapes = SHAPES.get(name) or self._shapes()
        weights = [1.0 - sum(shape.odds for shape in shapes)]
        self._effects: list[tuple[Curve, Numbers]] = []
        for shape in shapes:
            for curve in shape.curves:
                self._effects.append((curve, shape.sign * np.array(STRENGTHS)))
                weights += [shape.odds / len(shape.curves) * w for w in _WEIGHTS]
        self.weights = np.array(weights)

    def table(self, configs: Sequence[Config]) -> Numbers:
        """Logs of time beyond the first launch, configurations x alternatives."""
        found = [config.get(self._name) for config in configs]
        keys = [repr(value) for value in found]
        places = {key: self._place(value) for key, value in zip(keys, found, strict=True)}
        rows = {key: row for row, key in enumerate(places)}
        return self._table(np.array(list(places.values())))[[rows[key] for key in keys]]

    def _table(self, values: Numbers) -> Numbers:
        start = np.array([self._place(self._first)])
        columns = [np.zeros((len(values), 1))]
        for curve, strengths in self._effects:
            columns.append((curve(values) - curve(start))[:, None] * strengths[None, :])
        return np.concatenate(columns, axis=1)

    def _shapes(self) -> tuple[Shape, ...]:
        if self._name == "max-model-len" and _is_number(self._first):
            longest = float(self._first)  # type: ignore[arg-type]
            return (Shape(_LENGTH_ODDS, (lambda x: np.minimum(x / longest, 1.0),)),)
        if _is_number(self._first):
            up: Curve = lambda x: np.clip(x / _OCTAVES, -1.0, 1.0)  # noqa: E731
            return Shape(_OTHER_ODDS / 2.0, (up,)), Shape(_OTHER_ODDS / 2.0, (up,), sign=-1.0)
        return Shape(_WORD_ODDS / 2.0, (_on,)), Shape(_WORD_ODDS / 2.0, (_on,), sign=-1.0)

    def _place(self, value: FlagValue | None) -> float:
        """Where a value lies on the scale of the curves: itself, else octaves from the first launch's, else 1
        for any other word.
        """
        if value is None:
            value = _ABSENT.get(self._name)
        if self._name in SHAPES or self._name == "max-model-len":
            return float(value) if isinstance(value, bool | int | float) else 0.0
        if _is_number(self._first):
            other = float(value) if _is_number(value) else 0.0  # type: ignore[arg-type]
            return math.log2((max(other, 0.0) + 1.0) / (max(float(self._first), 0.0) + 1.0))  # type: ignore[arg-type]
        return float(repr(value) != repr(self._first))


class Beliefs:
    """Draws of every flag's effect: from the prior, until `learn` has seen launches."""

    def __init__(self, first: Config) -> None:
        self._first = first
        self._flags: dict[str, Flag] = {}
        self._drawn: dict[str, NDArray[np.int64]] = {}
        self._fresh: dict[str, NDArray[np.int64]] = {}

    def learn(self, configs: Sequence[Config], precision: Numbers, pull: Numbers) -> None:
        """Draw anew, given what launches say of their own times beyond the first one's.

        Args:
            configs: the launches, the first one left out.
            precision, pull: of a normal likelihood of those times, launches x launches and launches.
        """
        self._drawn.clear()
        n = len(configs)
        if not n:
            return
        both = np.column_stack([precision, pull])
        inner = np.linalg.solve(precision + np.linalg.inv(launch_noise(n)), both)
        matrix = precision - precision @ inner[:, :-1]
        towards = pull - precision @ inner[:, -1]
        matrix = (matrix + matrix.T) / 2.0
        tables = {name: self._flag(name).table(configs) for name in self._names(configs)}
        tables = {name: table for name, table in tables.items() if np.abs(table).max() > 0.0}
        rng = np.random.default_rng([n, 77])
        total = np.zeros((CHAINS, n))
        now: dict[str, Numbers] = {}
        for name, table in tables.items():
            drawn = self._prior(name)
            self._drawn[name] = drawn
            now[name] = table.T[drawn]
            total += now[name]
        fixed = {
            name: np.log(self._flag(name).weights) - 0.5 * np.einsum("ia,ij,ja->a", table, matrix, table)
            for name, table in tables.items()
        }
        for sweep in range(_SWEEPS):
            heat = min(1.0, (sweep + 3) / (0.6 * _SWEEPS))  # tempered at first, so that chains find the modes
            for name, table in tables.items():
                rest = total - now[name]
                score = fixed[name][None, :] + (towards[None, :] - rest @ matrix) @ table
                drawn = _pick(heat * score, rng)
                self._drawn[name] = drawn
                now[name] = table.T[drawn]
                total = rest + now[name]

    def draws(self, configs: Sequence[Config]) -> Numbers:
        """Logs of time beyond the first launch's, draws x configurations."""
        total = np.zeros((CHAINS, len(configs)))
        for name in self._names(configs):
            drawn = self._drawn[name] if name in self._drawn else self._prior(name)
            total += self._flag(name).table(configs).T[drawn]
        return total

    def _names(self, configs: Sequence[Config]) -> list[str]:
        names = set(self._first).union(*configs) - _KNOWN_ALREADY
        return sorted(n for n in names if any(c.get(n) != self._first.get(n) for c in configs))

    def _flag(self, name: str) -> Flag:
        if name not in self._flags:
            self._flags[name] = Flag(name, self._first.get(name))
        return self._flags[name]

    def _prior(self, name: str) -> NDArray[np.int64]:
        """Draws in proportion to the weights, evenly spread, in an order of the flag's own."""
        if name in self._fresh:
            return self._fresh[name]
        weights = self._flag(name).weights
        at = (np.arange(CHAINS) + 0.5) / CHAINS
        drawn = np.minimum(np.searchsorted(np.cumsum(weights), at), len(weights) - 1)
        self._fresh[name] = np.random.default_rng(zlib.crc32(name.encode())).permutation(drawn)
        return self._fresh[name]


def launch_noise(n: int) -> Numbers:
    """Covariance of launches' own speeds, against that of the first launch."""
    return np.asarray(LAUNCH**2 * (np.eye(n) + np.ones((n, n))))


def _pick(logs: Numbers, rng: np.random.Generator) -> NDArray[np.int64]:
    """One column of each row, by its log odds."""
    odds = np.exp(logs - logs.max(axis=1, keepdims=True))
    reached = np.cumsum(odds, axis=1)
    mark = rng.random(len(logs))[:, None] * reached[:, -1:]
    return np.asarray(np.minimum((reached < mark).sum(axis=1), logs.shape[1] - 1))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
