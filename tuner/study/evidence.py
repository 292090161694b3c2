"""What one launch of the finals showed, kept replay by replay: an interruption costs none of them twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.base import LaunchFailure, ServerFacts
from tuner.measure import Judgement, Verdict, judge
from tuner.replay.records import Replay
from tuner.spec import Slo
from tuner.study.storage import plain
from tuner.study.users import Row, UserFigures

_COLUMNS = (
    "scheduled_s",
    "sent_s",
    "first_s",
    "last_s",
    "input_tokens",
    "output_tokens",
    "tokens",
    "first_tokens",
    "status",
)
_SCALARS = (
    "offered_rps",
    "engine_s",
    "users",
    "stopped",
    "simulated",
    "tokens_estimated",
    "invalid_reason",
    "counters",
    "errors",
)


@dataclass(slots=True)
class Launched:
    """One launch: its replays by load, those that prove nothing apart; or why it is not there."""

    judged: dict[float, Judgement] = field(default_factory=dict)
    invalid: list[tuple[float, Judgement]] = field(default_factory=list)
    facts: ServerFacts | None = None
    failure: LaunchFailure | None = None
    users: UserFigures | None = None
    done: bool = False

    def add(self, load: float, judgement: Judgement) -> None:
        """A replay at a load; one whose client was the bottleneck is no evidence."""
        if judgement.verdict is Verdict.INVALID:
            self.invalid.append((load, judgement))
        else:
            self.judged[load] = judgement


class Keeper:
    """One launch's evidence in a folder. `key` says of what: other evidence is thrown away."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._loads: list[float] = []

    def read(self, slo: Slo) -> Launched:
        """What an interrupted process left."""
        launched = Launched()
        try:
            values = json.loads(self._file.read_text(encoding="utf-8"))
            if values["key"] != self._key:
                raise ValueError("of another launch")
            for index, load in enumerate(values["loads"]):
                launched.add(load, judge(_read_replay(self._replay(index)), slo))
            launched.facts = ServerFacts.from_json(values["facts"]) if values["facts"] else None
            launched.users = _users_of(values["users"])
            failure = values["failure"]
            launched.failure = LaunchFailure.from_json(failure) if failure else None
            launched.done = bool(values["done"])
            self._loads = list(values["loads"])
        except (OSError, ValueError, KeyError, TypeError):
            self._loads = []
            return Launched()
        return launched

    def replayed(self, launched: Launched, load: float, replay: Replay) -> None:
        """Keep one more replay."""
        path = self._replay(len(self._loads))
        self._folder.mkdir(parents=True, exist_ok=True)
        columns = {name: getattr(replay, name) for name in _COLUMNS}
        scalars = json.dumps(plain({name: _plain(getattr(replay, name)) for name in _SCALARS}))
        with (unfinished := path.with_suffix(".part")).open("wb") as file:
            np.savez(file, scalars=np.array(scalars), **columns)
        unfinished.replace(path)
        self._loads.append(load)
        self.write(launched)

    def write(self, launched: Launched) -> None:
        """Keep what is known of the launch beside its replays."""
        self._folder.mkdir(parents=True, exist_ok=True)
        values = {
            "key": self._key,
            "done": launched.done,
            "loads": self._loads,
            "facts": plain(launched.facts.to_json()) if launched.facts else None,
            "users": _users_values(launched.users),
            "failure": launched.failure.to_json() if launched.failure else None,
        }
        unfinished = self._file.with_suffix(".part")
        unfinished.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self._file)

    @property
    def _file(self) -> Path:
        return self._folder / "evidence.json"

    def _replay(self, index: int) -> Path:
        return self._folder / f"replay-{index}.npz"


def _read_replay(path: Path) -> Replay:
    with np.load(path, allow_pickle=False) as table:
        scalars: Mapping[str, Any] = json.loads(str(table["scalars"]))
        return Replay(**{name: table[name] for name in _COLUMNS}, **scalars)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _users_values(users: UserFigures | None) -> dict[str, Any] | None:
    if users is None:
        return None
    return {
        "users": users.users,
        "broken": users.broken,
        "rows": [[n, *row] for n, row in users.rows.items()],
    }


def _users_of(values: dict[str, Any] | None) -> UserFigures | None:
    if values is None:
        return None
    rows: dict[int, Row] = {int(n): (mean, last) for n, mean, last in values["rows"]}
    return UserFigures(int(values["users"]), rows, bool(values["broken"]))
