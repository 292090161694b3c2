"""How far a recommendation holds: under other SLOs, other traffic, and what each flag gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tuner.engines.base import Predictor
from tuner.measure import STEP
from tuner.profiles.evidence import FlagGain, SeparateQueue, Shift
from tuner.space.config import LaunchConfig
from tuner.spec import FlagValue, Slo
from tuner.study.finalist import Finalist
from tuner.study.job import Job
from tuner.traces import Trace

LONGER = 1.2
"""Times the prompts' lengths: a small shift."""
BURST_S = 60.0
"""All of a minute's requests come in its first half."""
FEW = 0.1
_LONG = 4.0  # times the median prompt
_WORTH = 1.05
SMALL = ("longer prompts", "burstier arrivals")
_NOTHING_LOST = 0.99


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Capacities under shifts, what breaks at a small one ("" if nothing), and a queue for long requests."""

    shifts: tuple[Shift, ...] = ()
    brittle: str = ""
    separate: SeparateQueue | None = None


def sensitivity(job: Job, traffic: Trace, default: Finalist, winner: Finalist) -> Sensitivity:
    """What default and winner carry when something changes.

    The finals' own replays say it where they reach (`measured`); else it is predicted (`simulated`), as a
    share of what is predicted for `traffic`, the part of the trace that the predictor knows.
    """
    carried = [f.figures.throughput_rps if f.figures else 0.0 for f in (default, winner)]
    exact = "simulated" if job.engine.name == "sim" else "measured"
    shifts = [_measured("SLO 0.5x", default, winner), Shift("SLO 1x", carried[0], carried[1], exact)]
    ask = job.predictor
    if ask is not None:
        plain = [ask.capacity_rps(f.config) for f in (default, winner)]
        half, double = _scaled(job.spec.slo, 0.5), _scaled(job.spec.slo, 2.0)
        others: dict[str, tuple[Trace | None, Slo | None]] = {
            **({} if shifts[0] is not None else {"SLO 0.5x": (None, half)}),
            "SLO 2x": (None, double),
            "longer prompts": (longer_prompts(traffic), None),
            "burstier arrivals": (burstier(traffic), None),
        }
        for name, (trace, slo) in others.items():
            rps = [
                now * ask.capacity_rps(f.config, trace=trace, slo=slo) / before if before > 0.0 else 0.0
                for f, now, before in zip((default, winner), carried, plain, strict=True)
            ]
            shifts.append(Shift(name, rps[0], rps[1], "simulated"))
    found = sorted((s for s in shifts if s is not None), key=lambda shift: _ORDER.index(shift.name))
    separate = separate_queue(ask, winner, traffic) if ask is not None else None
    return Sensitivity(tuple(found), _brittle(found) if winner is not default else "", separate)


_ORDER = ("SLO 0.5x", "SLO 1x", "SLO 2x", *SMALL)


def _measured(name: str, default: Finalist, winner: Finalist) -> Shift | None:
    if default.half_slo is None or winner.half_slo is None:
        return None
    return Shift(name, default.half_slo, winner.half_slo, "measured")


def _brittle(shifts: list[Shift]) -> str:
    """The small shifts at which the winner carries less than the defaults."""
    said = []
    for shift in shifts:
        if shift.name not in SMALL or shift.default_rps <= 0.0 or shift.tuned_rps * STEP >= shift.default_rps:
            continue
        how = f"{shift.tuned_rps:.3g} requests/s against {shift.default_rps:.3g} of the defaults"
        if shift.tuned_rps <= 0.0:
            how = "the SLO is met at no load, by the defaults it is"
        said.append(f"{shift.name}: {how}")
    return "; ".join(said)


def longer_prompts(trace: Trace) -> Trace:
    """The same requests with longer prompts; what they share stays as long as it was."""
    return replace(trace, input_tokens=np.rint(trace.input_tokens * LONGER).astype(np.int32))


def burstier(trace: Trace) -> Trace:
    """The same requests, those of each minute in its first half."""
    minute = np.floor(trace.arrival_s / BURST_S)
    return replace(trace, arrival_s=minute * BURST_S + (trace.arrival_s - minute * BURST_S) / 2.0)


def separate_queue(ask: Predictor, winner: Finalist, traffic: Trace) -> SeparateQueue | None:
    """What the short and the long requests give apart, where that is more than together."""
    lengths = traffic.input_tokens
    if not len(lengths):
        return None
    long = lengths >= _LONG * float(np.median(lengths))
    share = float(long.mean())
    if not 0.0 < share <= FEW:
        return None
    split = int(lengths[long].min())
    parts = [traffic.take(np.flatnonzero(rows)) for rows in (~long, long)]
    if min(len(part) for part in parts) < 2 or min(part.duration_s for part in parts) <= 0.0:
        return None
    together = ask.capacity_rps(winner.config)
    short_rps, long_rps = (
        ask.capacity_rps(winner.config, trace=replace(part, arrival_s=part.arrival_s - part.arrival_s[0]))
        for part in parts
    )
    if min(together, short_rps, long_rps) <= 0.0:
        return None
    # machines for one request a second, each kind on its own
    apart = 1.0 / ((1.0 - share) / short_rps + share / long_rps)
    scale = (winner.figures.throughput_rps if winner.figures else together) / together
    if apart < together * _WORTH:
        return None
    return SeparateQueue(split, share, scale * together, scale * short_rps, scale * long_rps)


def flag_gains(
    job: Job, winner: Finalist, known: tuple[FlagGain, ...], most: int = 8
) -> tuple[FlagGain, ...]:
    """What goes when a flag is put back: as the engine measured it (`known`), else as predicted."""
    found = {gain.flag: gain for gain in known}
    ask = job.predictor
    if ask is not None and (whole := ask.capacity_rps(winner.config)) > 0.0:
        for flag in [flag for flag in sorted(winner.changed) if flag not in found][:most]:
            share = 1.0 - ask.capacity_rps(without(winner.config, flag)) / whole
            found[flag] = FlagGain(flag, winner.changed[flag], max(share, 0.0), "simulated")
    return tuple(sorted(found.values(), key=lambda gain: (-gain.gain, gain.flag)))


def least_change(ask: Predictor, config: LaunchConfig, changed: Mapping[str, FlagValue]) -> LaunchConfig:
    """The configuration without the flags that the predictor sees no use in, put back one by one."""
    whole = ask.capacity_rps(config)
    for flag in sorted(changed):
        less = without(config, flag)
        if whole > 0.0 and ask.capacity_rps(less) >= whole * _NOTHING_LOST:
            config = less
    return config


def without(config: LaunchConfig, flag: str) -> LaunchConfig:
    """The configuration with one flag left to vLLM."""
    return LaunchConfig.of({name: value for name, value in config.items() if name != flag})


def _scaled(slo: Slo, times: float) -> Slo:
    scaled = {f"{name}_p99_s": limit * times for name, limit in slo.limits().items()}
    return Slo(**scaled)
