"""A configuration: the vLLM flags that a launch sets, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.spec import FlagValue, digest


@dataclass(frozen=True, slots=True)
class LaunchConfig(Mapping[str, FlagValue]):
    """Flags by vLLM's own names without the dashes, sorted; hashable, so that no configuration runs twice."""

    items_: tuple[tuple[str, FlagValue], ...] = ()

    @classmethod
    def of(cls, flags: Mapping[str, FlagValue]) -> LaunchConfig:
        """A configuration of these flags; lists become tuples."""
        frozen = {name: _freeze(value) for name, value in flags.items()}
        return cls(tuple(sorted(frozen.items())))

    def __getitem__(self, name: str) -> FlagValue:
        for key, value in self.items_:
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def key(self) -> str:
        """A short digest that names this configuration."""
        return digest(self.items_)


def _freeze(value: FlagValue) -> FlagValue:
    return tuple(_freeze(v) for v in value) if isinstance(value, list | tuple) else value
