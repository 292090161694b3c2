"""One flag that is searched: its values, its Optuna distribution, and how a value in force maps onto it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.spec import FlagValue

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class ParameterKind(StrEnum):
    """How the values of a parameter are given."""

    INT = "int"
    FLOAT = "float"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A searched flag. Ranges hold `low` and `high` (included), and `log` or `step`; choices hold `choices`.

    `when` names other flags and the values that they must have for this one to be set at all. `default` is
    what stands for a value in force that is not known, `notes` a few words about single choices.
    """

    name: str
    kind: ParameterKind
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    choices: tuple[FlagValue, ...] = ()
    when: tuple[tuple[str, tuple[FlagValue, ...]], ...] = ()
    default: FlagValue = None
    notes: tuple[str, ...] = ()

    def distribution(self) -> BaseDistribution:
        """The Optuna distribution; choices that Optuna does not store (lists) stand in it as JSON text."""
        # Optuna takes half a second to import, which only a study needs.
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind is ParameterKind.CHOICE:
            return CategoricalDistribution(tuple(_stored(choice) for choice in self.choices))
        if self.kind is ParameterKind.INT:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(float(self.low), float(self.high), log=self.log, step=self.step)

    def value(self, stored: Any) -> FlagValue:
        """The flag's value for a value that Optuna gave."""
        if self.kind is ParameterKind.CHOICE:
            found = next((choice for choice in self.choices if same(_stored(choice), stored)), None)
            return stored if found is None else found
        if self.kind is ParameterKind.INT:
            return int(stored)
        return round(float(stored), 12) if self.step else float(stored)

    def point(self, value: FlagValue) -> Any:
        """Optuna's value that is nearest to this value in force (`default` where None or not comparable)."""
        for candidate in (value, self.default):
            if self.kind is ParameterKind.CHOICE:
                found = self._nearest_choice(candidate)
                if found is not None:
                    return _stored(self.choices[found])
            elif _is_number(candidate):
                return self._on_grid(candidate)  # type: ignore[arg-type]
        return _stored(self.choices[0]) if self.kind is ParameterKind.CHOICE else self._on_grid(self.low)

    def widened(self, value: FlagValue) -> Parameter:
        """The parameter with its range or choices made to hold this value; itself where they do."""
        if value is None and self.kind is ParameterKind.CHOICE:
            value = self.default  # None where vLLM itself has none: a choice like any other, left out of argv
        elif value is None:
            return self
        if self.kind is ParameterKind.CHOICE:
            if any(same(choice, value) for choice in self.choices):
                return self
            numbers = all(_is_number(choice) for choice in (*self.choices, value))
            pairs = [*zip(self.choices, self.notes or ("",) * len(self.choices), strict=True), (value, _OWN)]
            if numbers:
                pairs.sort(key=lambda pair: float(pair[0]))  # type: ignore[arg-type]
            choices, notes = zip(*pairs, strict=True)
            return replace(self, choices=choices, notes=notes)
        if not _is_number(value):
            return self
        number = float(value)  # type: ignore[arg-type]
        if self.low <= number <= self.high or (self.log and number <= 0):
            return self
        if self.kind is ParameterKind.INT:
            number = math.floor(number) if number < self.low else math.ceil(number)
        if self.step is None:
            return replace(self, low=min(self.low, number), high=max(self.high, number))
        return self._widened_by_steps(number)

    def size(self) -> float:
        """How many values there are; infinite for a float range without step."""
        if self.kind is ParameterKind.CHOICE:
            return float(len(self.choices))
        if self.step is None and self.kind is ParameterKind.FLOAT:
            return 1.0 if self.low == self.high else math.inf
        return float(_steps(self.low, self.high, self.step or 1)) + 1

    def sample(self, rng: np.random.Generator) -> Any:
        """A random point, uniform (in the logarithm where `log`), as Optuna would store it."""
        if self.kind is ParameterKind.CHOICE:
            return _stored(self.choices[int(rng.integers(len(self.choices)))])
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = float(rng.uniform(self.low, self.high))
        return self._on_grid(drawn)

    def describe(self) -> str:
        """One readable line."""
        if self.kind is ParameterKind.CHOICE:
            notes = self.notes or ("",) * len(self.choices)
            words = [f"{shown(c)} ({n})" if n else shown(c) for c, n in zip(self.choices, notes, strict=True)]
            line = ", ".join(words)
        else:
            how = ", logarithmic" if self.log else f" by {self.step:g}" if self.step else ""
            line = f"{shown(self.low)} to {shown(self.high)}{how}"
        if self.when:
            needed = (f"{name} is {' or '.join(map(shown, values))}" for name, values in self.when)
            line += f", when {' and '.join(needed)}"
        return line

    def to_json(self) -> dict[str, Any]:
        """What the digest of a space is made from."""
        return {
            "name": self.name,
            "kind": self.kind.value,
            "range": [self.low, self.high, self.step, self.log],
            "choices": [[type(choice).__name__, _stored(choice)] for choice in self.choices],
            "when": self.when,
        }

    def _nearest_choice(self, value: FlagValue) -> int | None:
        for index, choice in enumerate(self.choices):
            if same(choice, value):
                return index
        numbers = [(i, float(c)) for i, c in enumerate(self.choices) if _is_number(c)]  # type: ignore[arg-type]
        if not _is_number(value) or not numbers:
            return None
        return min(numbers, key=lambda pair: abs(pair[1] - float(value)))[0]  # type: ignore[arg-type]

    def _on_grid(self, value: float) -> int | float:
        inside = min(max(value, self.low), self.high)
        if self.step:
            count = round((inside - self.low) / self.step)
            inside = float(Decimal(str(self.low)) + count * Decimal(str(self.step)))
        return round(inside) if self.kind is ParameterKind.INT else float(inside)

    def _widened_by_steps(self, number: float) -> Parameter:
        low, high, step = (Decimal(str(each)) for each in (self.low, self.high, self.step))
        target = Decimal(str(number))
        if target < low:
            low -= math.ceil((low - target) / step) * step
        else:
            high += math.ceil((target - high) / step) * step
        if self.kind is ParameterKind.INT:
            return replace(self, low=int(low), high=int(high))
        return replace(self, low=float(low), high=float(high))


_OWN = "vLLM's own"


def same(one: object, other: object) -> bool:
    """Equality of flag values in which true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def shown(value: object) -> str:
    """A flag value as YAML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | Mapping):
        return json.dumps(value)
    return "none" if value is None else str(value)


def step_fits(low: float, high: float, step: float) -> bool:
    """Whether whole steps lead from low to high."""
    return (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(step)) == 0


def _steps(low: float, high: float, step: float) -> int:
    return int((Decimal(str(high)) - Decimal(str(low))) / Decimal(str(step)))


def _stored(choice: FlagValue) -> None | bool | int | float | str:
    return json.dumps(choice) if isinstance(choice, tuple) else choice


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
