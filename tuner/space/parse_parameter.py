"""A parameter of a space file, from what is written under its name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tuner.errors import BadRequest
from tuner.models.shape import ModelShape
from tuner.space.flag import Flag, FlagKind
from tuner.space.flags import FlagTable
from tuner.space.lengths import LEVELS, length_choices
from tuner.space.parameter import Parameter, ParameterKind, same, step_fits
from tuner.space.space_file import canonical_name
from tuner.space.yaml_file import Entry
from tuner.spec import FlagValue
from tuner.traces.trace import Trace

_KEYS = ("low", "high", "log", "step", "choices", "from-trace", "when")
_FORMS = "write {low: 1, high: 8}, [1, 2, 4] or from-trace"
When = tuple[tuple[str, tuple[FlagValue, ...]], ...]
_MAX_CHOICES = 200
_LARGEST = 2**53


class ParameterParser:
    """Reads parameters for one table of flags, model and trace. `coverage` adds a level to `from-trace`."""

    def __init__(
        self, table: FlagTable, shape: ModelShape, trace: Trace, coverage: float | None = None
    ) -> None:
        self.table = table
        self.shape = shape
        self.trace = trace
        self.levels = LEVELS if coverage is None else tuple(sorted({coverage, *LEVELS}))

    def parse(self, name: str, entry: Entry) -> Parameter:
        """The parameter `name` as `entry` describes it.

        Raises:
            BadRequest: with file, line and key.
        """
        value = entry.value
        if value == "from-trace":
            return self._from_trace(name, entry, self.levels, ())
        if isinstance(value, list):
            return self._choices(name, entry, entry, ())
        if not isinstance(value, dict):
            what = f"{name}: {value!r} is one value, not a range"
            raise entry.error(what, f"{_FORMS}; or put it under `fixed:`")
        for key, child in value.items():
            if key not in _KEYS:
                raise child.error(f"{name}: unknown key {key!r}", f"known: {', '.join(_KEYS)}")
        when = self._when(name, value.get("when"))
        if "choices" in value:
            self._alone("choices", value, entry, name)
            return self._choices(name, entry, value["choices"], when)
        if "from-trace" in value:
            self._alone("from-trace", value, entry, name)
            return self._from_trace(name, entry, self._levels(name, value["from-trace"]), when)
        return self._range(name, entry, value, when)

    def _alone(self, key: str, value: Mapping[str, Entry], entry: Entry, name: str) -> None:
        others = sorted(set(value) - {key, "when"})
        if others:
            raise entry.error(f"{name}: {key} cannot stand with {', '.join(others)}", "keep one of them")

    def _when(self, name: str, entry: Entry | None) -> When:
        if entry is None:
            return ()
        if not isinstance(entry.value, dict) or not entry.value:
            raise entry.error(f"{name}: when: takes flags and their values", "write `when: {flag: value}`")
        conditions = []
        for written, child in entry.value.items():
            flag = canonical_name(written, self.table)
            plain = child.plain()
            values = tuple(frozen(each) for each in (plain if isinstance(plain, list) else [plain]))
            for value in values:
                problem = self.table.problem(flag, value)
                if problem is not None:
                    raise child.error(f"{name}: when: {problem.what}", problem.mend)
            conditions.append((flag, values))
        return tuple(conditions)

    def _choices(self, name: str, entry: Entry, listed: Entry, when: When) -> Parameter:
        if not isinstance(listed.value, list) or not listed.value:
            raise listed.error(f"{name}: choices takes a list of values", "write `choices: [16, 32]`")
        if len(listed.value) > _MAX_CHOICES:
            raise listed.error(f"{name}: more than {_MAX_CHOICES} choices", "use low and high")
        choices: list[FlagValue] = []
        for child in listed.value:
            value = frozen(child.plain())
            self._accepted(name, child, value)
            if any(same(value, other) for other in choices):
                raise child.error(f"{name}: {value!r} stands twice", "keep one")
            choices.append(value)
        return Parameter(
            name, ParameterKind.CHOICE, choices=tuple(choices), when=when, default=self._default(name)
        )

    def _levels(self, name: str, entry: Entry) -> tuple[float, ...]:
        value = entry.plain()
        if value is True or value is None:
            return self.levels
        levels = value if isinstance(value, list) else [value]
        if not levels or not all(_number(level) and 0 < level <= 1 for level in levels):
            raise entry.error(f"{name}: from-trace takes shares of the trace", "write [0.99, 1.0]")
        return tuple(sorted({*map(float, levels), *(set(self.levels) - set(LEVELS))}))

    def _from_trace(
        self,
        name: str,
        entry: Entry,
        levels: tuple[float, ...],
        when: When,
    ) -> Parameter:
        if name != "max-model-len":
            raise entry.error(f"{name}: from-trace is for max-model-len only", _FORMS)
        found = length_choices(self.trace, self.shape.max_model_len, levels)
        return Parameter(
            name,
            ParameterKind.CHOICE,
            choices=tuple(length for length, _ in found),
            notes=tuple(f"covers {share_words(share)}" for _, share in found),
            when=when,
            default=self.shape.max_model_len,
        )

    def _range(
        self,
        name: str,
        entry: Entry,
        value: Mapping[str, Entry],
        when: When,
    ) -> Parameter:
        if "low" not in value or "high" not in value:
            raise entry.error(f"{name}: needs low and high, or choices", _FORMS)
        low, high = (self._bound(name, value[key], key) for key in ("low", "high"))
        flag = self.table.get(name)
        if flag is not None and (flag.kind not in (FlagKind.INT, FlagKind.FLOAT) or flag.listed):
            raise entry.error(f"{name}: is not a number, so it has no range", "give its values as choices")
        for key, bound in (("low", low), ("high", high)):
            self._accepted(name, value[key], bound)
        if flag is not None and flag.kind is FlagKind.INT:
            low, high = int(low), int(high)
        whole = isinstance(low, int) and isinstance(high, int) and (flag is None or flag.kind is FlagKind.INT)
        kind = ParameterKind.INT if whole else ParameterKind.FLOAT
        log = value["log"].value if "log" in value else False
        if not isinstance(log, bool):
            raise value["log"].error(f"{name}: log is true or false", "write `log: true`")
        step = self._step(name, value.get("step"), kind)
        if low > high:
            raise value["low"].error(f"{name}: low {low:g} is above high {high:g}", "exchange them")
        if log and step is not None:
            raise value["step"].error(f"{name}: log and step exclude each other", "keep one, or give choices")
        if log and low <= 0:
            raise value["low"].error(f"{name}: a logarithmic range begins above 0", "raise low")
        if step is not None and not step_fits(low, high, step):
            fits = low + int((high - low) / step) * step
            raise value["high"].error(
                f"{name}: no whole number of steps of {step:g} leads from {low:g} to {high:g}",
                f"write high: {fits:g}",
            )
        return Parameter(
            name, kind, low=low, high=high, step=step, log=log, when=when, default=self._default(name)
        )

    def _bound(self, name: str, entry: Entry, key: str) -> int | float:
        if not _number(entry.value) or not math.isfinite(entry.value):
            raise entry.error(f"{name}: {key} {entry.plain()!r} is not a number", "write it like 16 or 0.9")
        number: int | float = entry.value
        if abs(number) > _LARGEST:
            raise entry.error(f"{name}: {key} is out of all bounds", "give a smaller number")
        return number

    def _step(self, name: str, entry: Entry | None, kind: ParameterKind) -> float | None:
        if entry is None or entry.value is None:
            return None
        step = self._bound(name, entry, "step")
        if kind is ParameterKind.INT and step == int(step):
            step = int(step)
        if step <= 0 or (kind is ParameterKind.INT and not isinstance(step, int)):
            what = "a whole number above 0" if kind is ParameterKind.INT else "a number above 0"
            raise entry.error(f"{name}: step {step!r} is not {what}", "write it like 1")
        return step

    def _accepted(self, name: str, entry: Entry, value: FlagValue) -> None:
        problem = self.table.problem(name, value)
        if problem is not None:
            raise entry.error(problem.what, problem.mend)

    def _default(self, name: str) -> FlagValue:
        if name == "max-model-len":
            return self.shape.max_model_len
        if name == "swap-space":
            return 0
        flag: Flag | None = self.table.get(name)
        return flag.default if flag is not None else None


def frozen(value: Any) -> FlagValue:
    """A YAML value as a flag value: lists become tuples, mappings JSON text with sorted keys.

    Raises:
        BadRequest: a mapping that JSON cannot hold.
    """
    if isinstance(value, Mapping):
        try:
            return json.dumps(value, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise BadRequest(f"{value!r} is not JSON: {error}", "use plain values") from None
    if isinstance(value, list | tuple):
        return tuple(frozen(each) for each in value)
    return value  # type: ignore[no-any-return]


def share_words(share: float) -> str:
    """99.9% and the like; never 100% for less than all."""
    if share >= 1:
        return "100%"
    return f"{min(share * 100, 99.99):.4g}%"


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
