"""The search space of a study: what is searched, what is fixed, and the way between both and a launch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BadRequest
from tuner.hardware.gpu import Gpu
from tuner.models.shape import ModelShape
from tuner.space.argv import SWAP, offloading_flag
from tuner.space.config import LaunchConfig
from tuner.space.flags import FlagTable, flag_table
from tuner.space.parameter import Parameter, same
from tuner.space.parse_parameter import ParameterParser, frozen
from tuner.space.shipped import space_for
from tuner.space.space_file import canonical_flags, canonical_name, read_space_file
from tuner.space.yaml_file import Entry
from tuner.spec import FlagValue, digest
from tuner.traces.trace import Trace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Parameters in the order of their names, flags that every launch sets, and the file they came from."""

    parameters: tuple[Parameter, ...]
    fixed: LaunchConfig
    source: str
    notes: tuple[str, ...] = ()

    def distributions(self) -> dict[str, BaseDistribution]:
        """The Optuna distributions by flag name, always all of them, whatever `when` leaves out."""
        return {parameter.name: parameter.distribution() for parameter in self.parameters}

    def config(self, params: Mapping[str, Any]) -> LaunchConfig:
        """The launch of a point: fixed flags and parameters, without those whose `when` does not hold.

        Parameters that `params` does not name, and swap-space 0, are left to vLLM.
        """
        by_name = {parameter.name: parameter for parameter in self.parameters}
        values = {name: by_name[name].value(stored) for name, stored in params.items() if name in by_name}
        flags: dict[str, FlagValue] = dict(self.fixed)
        for name, value in values.items():
            if value is not None and self._active(by_name[name], by_name, values):
                flags[name] = value
        if not flags.get(SWAP):
            flags.pop(SWAP, None)
        return LaunchConfig.of(flags)

    def baseline(self) -> LaunchConfig:
        """The launch with none of the searched flags."""
        return self.fixed

    def params_of(self, effective: Mapping[str, FlagValue]) -> dict[str, Any]:
        """The point of the space that is nearest to these values in force, as Optuna stores it.

        A value that is not there stands for vLLM's default: swap-space 0, the model's own max-model-len.
        """
        return {p.name: p.point(_in_force(p, effective)) for p in self.parameters}

    def widened(self, effective: Mapping[str, FlagValue]) -> SearchSpace:
        """The space with ranges and choices made to hold these values in force; once, before a study."""
        return replace(self, parameters=tuple(p.widened(_in_force(p, effective)) for p in self.parameters))

    def describe(self) -> dict[str, str]:
        """One readable line a parameter."""
        return {parameter.name: parameter.describe() for parameter in self.parameters}

    def digest(self) -> str:
        """Short digest of all that is searched and fixed; not of the file's name."""
        return digest([[p.to_json() for p in self.parameters], list(self.fixed.items())])

    def size(self) -> float:
        """How many points there are; infinite where a float range has no step."""
        return math.prod(parameter.size() for parameter in self.parameters)

    def _active(
        self, parameter: Parameter, by_name: Mapping[str, Parameter], values: Mapping[str, FlagValue]
    ) -> bool:
        for name, allowed in parameter.when:
            value = values.get(name, self.fixed.get(name))
            if not any(same(value, each) for each in allowed):
                return False
            if name in by_name and not self._active(by_name[name], by_name, values):
                return False
        return True


def load_space(
    path: Path | None,
    *,
    gpu: Gpu,
    shape: ModelShape,
    trace: Trace,
    version: str,
    fixed: Mapping[str, FlagValue],
    coverage: float | None = None,
    table: FlagTable | None = None,
) -> SearchSpace:
    """Read a space file; None takes the shipped one of this GPU. `fixed` takes its flags out of the search.

    On several cards tensor-parallel-size is set to their number unless something says how to share the work.

    Raises:
        BadRequest: file, line, key and how to mend it; unknown flags with the nearest known name.
    """
    if coverage is not None and not 0 < coverage <= 1:
        raise BadRequest(f"coverage {coverage} is not a share of the trace", "write it like 0.95")
    known = table or flag_table(version)
    file = read_space_file(space_for(gpu.name) if path is None else path, known)
    given = canonical_flags(fixed, known, "--set")
    parser = ParameterParser(known, shape, trace, coverage)
    found = {
        name: parser.parse(name, entry)
        for name, entry in sorted(file.parameters.items())
        if name not in given
    }
    flags = {name: _fixed_value(name, entry, known) for name, entry in file.fixed.items()}
    flags |= {name: frozen(value) for name, value in given.items()}
    if gpu.count > 1 and not any(name in flags or name in found for name in _PARALLEL):
        flags["tensor-parallel-size"] = gpu.count
    found = _without_dead(found, flags, file.parameters)
    set_flags = {
        name: value for name, value in flags.items() if value is not None and (name != SWAP or value)
    }
    notes = [*file.notes, *(f"{old!r} is read as {new!r}" for old, new in _renamed(fixed, known))]
    if (SWAP in found or set_flags.get(SWAP)) and known.get(SWAP) is None:
        notes.append(
            f"swap-space: {known.gone.get(SWAP, 'gone')}; it is passed as {offloading_flag(version)}"
        )
    return SearchSpace(tuple(found.values()), LaunchConfig.of(set_flags), file.source, tuple(notes))


def _in_force(parameter: Parameter, effective: Mapping[str, FlagValue]) -> FlagValue:
    value = effective.get(parameter.name)
    if parameter.name == "max-model-len" and value in ("auto", -1):
        return None
    return 0 if parameter.name == SWAP and value is None else value


def _fixed_value(name: str, entry: Entry, table: FlagTable) -> FlagValue:
    plain = entry.plain()
    problem = table.problem(name, plain)
    if problem is not None:
        raise entry.error(problem.what, problem.mend)
    return frozen(plain)


def _without_dead(
    found: dict[str, Parameter], flags: Mapping[str, FlagValue], entries: Mapping[str, Entry]
) -> dict[str, Parameter]:
    """Check every `when:`, and leave out parameters whose condition a fixed flag can never meet."""
    for name, parameter in found.items():
        for other, _ in parameter.when:
            if other not in found and other not in flags:
                what = f"{name}: when: names {other!r}, which is neither a parameter nor fixed"
                raise entries[name].error(what, "name one that is")
        if _in_circle(name, name, found, set()):
            raise entries[name].error(f"{name}: when: goes round in a circle", "let one of them stand alone")
    alive = dict(found)
    while True:
        dead = {name for name, parameter in alive.items() if _is_dead(parameter, alive, flags)}
        if not dead:
            return alive
        alive = {name: parameter for name, parameter in alive.items() if name not in dead}


def _is_dead(parameter: Parameter, alive: Mapping[str, Parameter], flags: Mapping[str, FlagValue]) -> bool:
    return any(
        other not in alive and not any(same(flags.get(other), value) for value in values)
        for other, values in parameter.when
    )


def _in_circle(start: str, name: str, found: Mapping[str, Parameter], seen: set[str]) -> bool:
    for other, _ in found[name].when:
        if other == start:
            return True
        if other in found and other not in seen:
            seen.add(other)
            if _in_circle(start, other, found, seen):
                return True
    return False


def _renamed(fixed: Mapping[str, FlagValue], table: FlagTable) -> list[tuple[str, str]]:
    return [(name, new) for name in fixed if (new := canonical_name(name, table)) != name]
