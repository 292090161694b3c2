"""What stands behind a recommendation: the finals, what each flag gave, ties, sensitivity, predictions."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue


@dataclass(frozen=True, slots=True)
class FinalRow:
    """One replay of the finals: which configuration (`label`), on which of its launches, at which load in
    requests/s, its P99 with its interval in seconds, and the verdict. `plain`: on a launch of exactly the
    exported command.
    """

    label: str
    launch: int
    load_rps: float
    p99_s: float | None
    interval_s: tuple[float | None, float | None]
    verdict: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class FlagGain:
    """What one flag gave: `gain` is the share of the capacity that goes when it is put back to vLLM's
    default, as the `engine` measured it or the `simulated` engine predicts it.
    """

    flag: str
    value: FlagValue
    gain: float
    source: str


@dataclass(frozen=True, slots=True)
class Tie:
    """A configuration that cannot be told apart from the winner; `changed` names the flags in which it is
    away from vLLM's defaults.
    """

    flags: LaunchConfig
    throughput_rps: float
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shift:
    """Capacity of default and winner under another SLO or another traffic, such as "SLO 0.5x"."""

    name: str
    default_rps: float
    tuned_rps: float
    source: str


@dataclass(frozen=True, slots=True)
class SeparateQueue:
    """Capacity when prompts of at least `split_tokens`, a share `long_share` of the requests, are served
    apart: all together, and the short and the long part each alone.
    """

    split_tokens: int
    long_share: float
    together_rps: float
    short_rps: float
    long_rps: float


@dataclass(frozen=True, slots=True)
class Drift:
    """Capacity of the default on its launches in the order of time, the relative spread between them, and the
    limit above which the machine changed too much under the finals.
    """

    loads_rps: tuple[float, ...]
    relative: float
    limit: float

    @property
    def excessive(self) -> bool:
        """Whether the machine drifted more than the comparison bears."""
        return self.relative > self.limit


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """Predicted against measured capacity of one configuration, after so many launches."""

    label: str
    predicted_rps: float
    measured_rps: float
    launches_before: int


@dataclass(frozen=True, slots=True)
class CardsRow:
    """The best of the search among configurations of so many GPUs each: two small servers or one large?"""

    cards: int
    trials: int
    throughput_rps: float
    per_card_rps: float
    flags: LaunchConfig
