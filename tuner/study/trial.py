"""One launch: start a configuration, find its capacity, stop it, keep what was seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tuner.engines.base import LaunchFailure, Server, ServerFacts
from tuner.measure import STEP, Capacity, Judgement, Verdict, summarize
from tuner.replay.records import Replay, Workload
from tuner.replay.stop import Curtailment
from tuner.space.config import LaunchConfig
from tuner.study.job import Job
from tuner.study.load import Offer, search
from tuner.study.records import Observer
from tuner.study.storage import plain

Judge = Callable[[float], Judgement]
_BELOW = 4
"""Steps of the grid below the load at which a configuration lost."""


@dataclass(slots=True)
class Spending:
    """What the study has cost so far: launches, and seconds of engine time."""

    launches: int = 0
    engine_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """One launch. `capacity` is None exactly where `failure` says why."""

    config: LaunchConfig
    facts: ServerFacts | None = None
    capacity: Capacity | None = None
    failure: LaunchFailure | None = None
    engine_s: float = 0.0
    replay_s: float = 0.0
    """Seconds of `engine_s` that were replays; the launch is `facts.startup_s` of them."""
    warm_up_s: float = 0.0
    """Seconds that the server was warmed up, where the engine tells."""
    judgements: tuple[tuple[float, Judgement], ...] = ()
    """Its replays by load."""


class _Watching:
    """A replay's progress as events of the observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __call__(self, done: int, planned: int) -> None:
        self._observer.replay_progress(done, planned)

    def latency(self, p99_s: float) -> None:
        self._observer.replay_latency(p99_s)


class Session:
    """A server that is up, for whoever measures on it: replays are counted, shown and kept."""

    def __init__(self, server: Server, job: Job, observer: Observer, spent: Spending) -> None:
        self.server = server
        self.facts = server.facts
        self._slo = job.spec.slo
        self._observer = observer
        self._spent = spent
        self.summaries: list[dict[str, Any]] = []
        self.judgements: list[tuple[float, Judgement]] = []
        self.replay_s = 0.0
        self.warm_up_s = 0.0

    def send(self, workload: Workload, stop: Curtailment | None = None) -> Replay:
        """Replay a workload."""
        replay = self.server.replay(workload, stop, _Watching(self._observer))
        warm_up_s = replay.counters.get("warm_up_s", 0.0)
        self._spent.engine_s += replay.engine_s + warm_up_s
        self.replay_s += replay.engine_s
        self.warm_up_s += warm_up_s
        return replay

    def judge(self, offer: Offer, load: float) -> Judgement:
        """Replay at a load and judge it; once more where the first replay proved nothing."""
        judgement = offer.judge(self.send, load)
        if judgement.verdict is Verdict.INVALID:
            self.keep(load, judgement)
            judgement = offer.judge(self.send, load)
        self.keep(load, judgement)
        return judgement

    def keep(self, load: float, judgement: Judgement) -> None:
        """Note a replay's figures and show them."""
        self.judgements.append((load, judgement))
        kept = {"engine_s": round(judgement.replay.engine_s, 3), "users": judgement.replay.users}
        self.summaries.append({"load": load, **kept, **summarize(judgement, self._slo)})
        self._observer.replayed(load, judgement)


@dataclass(slots=True)
class Bench:
    """Where launches happen: the job, who watches, and what it has cost."""

    job: Job
    observer: Observer
    spent: Spending = field(default_factory=Spending)
    last_failure: LaunchFailure | None = None

    def run(self, config: LaunchConfig, folder: Path, measure: Callable[[Session], Capacity]) -> Run:
        """Launch `config` and measure on it; a server that dies meanwhile is a failure of the launch."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(
            yaml.safe_dump(plain(dict(config)), allow_unicode=True), encoding="utf-8"
        )
        before = self.spent.engine_s
        self.spent.launches += 1
        facts: ServerFacts | None = None
        session: Session | None = None
        try:
            server = self.job.engine.launch(config, folder, self.observer.phase)
            facts = server.facts
            self.spent.engine_s += facts.startup_s
            session = Session(server, self.job, self.observer, self.spent)
            with server:
                capacity = measure(session)
        except LaunchFailure as failure:
            self.spent.engine_s += failure.seconds
            self.last_failure = failure
            run = Run(config, facts, None, failure, self.spent.engine_s - before, *_parts_s(session))
        else:
            run = Run(config, facts, capacity, None, self.spent.engine_s - before, *_parts_s(session))
            run = replace(run, judgements=tuple(session.judgements))
        finally:
            if session is not None:
                text = json.dumps(session.summaries, indent=1)
                (folder / "replays.json").write_text(text + "\n", encoding="utf-8")
        (folder / "launch.json").write_text(json.dumps(launch_object(run), indent=1) + "\n", encoding="utf-8")
        return run

    def find_capacity(
        self, config: LaunchConfig, folder: Path, offer: Offer, start: float, *, beat_start: bool = False
    ) -> Run:
        """Launch `config` and find the highest load that it carries.

        One that loses at the start is replayed once more at a lower load: what it shows there teaches a
        predictor, and a launch costs far more than a replay.
        """

        def measure(session: Session) -> Capacity:
            capacity = search(offer, lambda load: session.judge(offer, load), start, beat_start=beat_start)
            below = offer.snap(start / STEP**_BELOW)
            if capacity.lost and self.job.predictor is not None and not self.job.engine.deterministic:
                session.judge(offer, max(below, offer.floor))
            return capacity

        return self.run(config, folder, measure)


def _parts_s(session: Session | None) -> tuple[float, float]:
    return (session.replay_s, session.warm_up_s) if session is not None else (0.0, 0.0)


def launch_object(run: Run) -> dict[str, Any]:
    """How a launch went, as `launch.json` keeps it beside `replays.json`."""
    failure = run.failure
    return {
        "engine_s": round(run.engine_s, 3),
        "startup_s": round(run.facts.startup_s, 3) if run.facts else None,
        "warm_up_s": round(run.warm_up_s, 3),
        "replay_s": round(run.replay_s, 3),
        "capacity": run.capacity.rps if run.capacity else None,
        "command": list(run.facts.command) if run.facts else None,
        "kv_tokens": run.facts.kv_tokens if run.facts else None,
        "failure": {"kind": failure.kind.value, "cause": failure.cause, "mend": failure.mend}
        if failure
        else None,
    }
