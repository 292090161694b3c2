"""Whether a profile still fits: today's traffic, vLLM, driver and GPU against those it was made for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import BadRequest
from tuner.hardware import card_of
from tuner.profiles.profile import Profile
from tuner.profiles.traffic import max_model_len, traffic_of
from tuner.space.flags import parse_version
from tuner.traces.trace import Trace

RATE_LIMIT = 1.5
"""Traffic grown by more than half asks for another load than was proven. Less traffic is no reason."""
LENGTH_LIMIT = 0.2
"""The work of a step goes with the lengths: from a fifth on, other batch sizes are likely to be best."""
TAIL_LIMIT = 0.3
"""The same for the longest percent, which makes P99; it is measured less surely."""
REUSE_LIMIT = 0.1
"""A tenth of the prompt tokens more or less to compute."""
GAPS_LIMIT = 0.5
RATE_CV_LIMIT = 0.3
"""Minutes that swing by 30% of the mean rate more than they did."""
OVER_LIMIT = 0.01
"""More than 1% of the requests rejected puts P99 out of reach, whatever the load."""
SURE = 3.0
"""A figure has moved only by more than so many standard errors of the difference."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure then and now. `moved`: so far that it is a reason to tune again; `said` is the sentence."""

    name: str
    then: float | str | None
    now: float | str | None
    moved: bool
    said: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values by the field's names."""
        return {"name": self.name, "then": self.then, "now": self.now, "moved": self.moved, "said": self.said}


@dataclass(frozen=True, slots=True)
class Here:
    """What is on this machine; None where it is not known, and then it is not compared."""

    vllm_version: str | None = None
    driver: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What was compared, and whether a reason to tune again was among it."""

    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why to tune again; empty where the profile still fits."""
        return tuple(finding.said for finding in self.findings if finding.moved)

    @property
    def fits(self) -> bool:
        """Whether the profile still fits."""
        return not self.reasons


def check_profile(profile: Profile, trace: Trace | None, here: Here) -> Check:
    """Compare a profile with new traffic and with this machine.

    Raises:
        BadRequest: nothing to compare, or traffic and a profile that holds no figures of its own.
    """
    findings = list(_machine(profile, here))
    if trace is not None:
        if not profile.traffic.get("requests"):
            raise BadRequest(
                f"profile of {profile.study}: it holds no figures of its traffic",
                "it comes from an earlier kimi-tune; tune once more to have them",
            )
        if not len(trace):
            raise BadRequest("the new trace holds no request", "record some traffic first")
        findings += _traffic(profile, trace)
    if not findings:
        raise BadRequest("nothing to compare with the profile", "give --trace, or --vllm-version")
    return Check(tuple(findings))


def _machine(profile: Profile, here: Here) -> Iterator[Finding]:
    if here.vllm_version is not None:
        then, now = profile.vllm_version, here.vllm_version
        moved = parse_version(then).release != parse_version(now).release
        said = f"vLLM {now} is here, {then} was tuned" if moved else f"vLLM {now}, as tuned"
        yield Finding("vllm_version", then, now, moved, said)
    if here.driver is not None and profile.driver is not None:
        moved = here.driver.partition(".")[0] != profile.driver.partition(".")[0]
        same = here.driver == profile.driver
        said = f"driver {here.driver}, {'as tuned' if same else f'tuned with {profile.driver}'}"
        yield Finding("driver", profile.driver, here.driver, moved, said)
    if here.gpu is not None and profile.gpu != "cpu":
        moved = card_of(here.gpu) != card_of(profile.gpu)
        said = f"the GPU here is {here.gpu}" + (f", {profile.gpu} was tuned" if moved else "")
        yield Finding("gpu", profile.gpu, here.gpu, moved, said)


def _traffic(profile: Profile, trace: Trace) -> Iterator[Finding]:
    then, now = profile.traffic, traffic_of(trace)
    yield from _rate(profile, then, now)
    for column, of in (("input_tokens", "prompts"), ("output_tokens", "answers")):
        old, new = _table(then.get(column)), _table(now.get(column))
        for figure in ("mean", "p50", "p90", "p99"):
            limit = TAIL_LIMIT if figure == "p99" else LENGTH_LIMIT
            yield from _ratio(f"{column}.{figure}", f"{of}, {figure}", old, new, figure, limit, " tokens")
    yield from _difference(
        "prefix_reuse",
        "prompt tokens that came before",
        then,
        now,
        "prefix_reuse",
        REUSE_LIMIT,
        both_ways=True,
    )
    yield from _ratio("cv_gaps", "variation of the gaps", then, now, "cv_gaps", GAPS_LIMIT, "", only_up=True)
    yield from _difference(
        "rate_cv", "swing of the rate between minutes", then, now, "rate_cv", RATE_CV_LIMIT, both_ways=False
    )
    yield from _too_long(profile, trace)


def _rate(profile: Profile, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    old, new = _number(then, "rate_rps"), _number(now, "rate_rps")
    if not old or new is None:
        return
    noise = math.hypot(_number(then, "rate_rps_se") or 0.0, _number(now, "rate_rps_se") or 0.0)
    moved = new / old > RATE_LIMIT and new - old > SURE * noise
    said = f"rate: {new:.3g} requests/s, {new / old:.2f} times the {old:.3g} of the profile's traffic"
    if new > profile.winner.throughput_rps > 0.0:
        said += f"; one server carries {profile.winner.throughput_rps:.3g}"
    yield Finding("rate_rps", old, new, moved, said)


def _ratio(
    name: str,
    what: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    key: str,
    limit: float,
    unit: str,
    *,
    only_up: bool = False,
) -> Iterator[Finding]:
    old, new = _number(then, key), _number(now, key)
    if not old or new is None:
        return
    change = new / old - 1.0
    noise = math.hypot(_number(then, f"{key}_se") or 0.0, _number(now, f"{key}_se") or 0.0)
    far = change > limit or (not only_up and change < 1.0 / (1.0 + limit) - 1.0)
    moved = far and abs(new - old) > SURE * noise
    yield Finding(name, old, new, moved, f"{what}: {new:.4g}{unit} against {old:.4g} ({change:+.0%})")


def _difference(
    name: str,
    what: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    key: str,
    limit: float,
    *,
    both_ways: bool,
) -> Iterator[Finding]:
    old, new = _number(then, key), _number(now, key)
    if old is None or new is None:
        return
    noise = math.hypot(_number(then, f"{key}_se") or 0.0, _number(now, f"{key}_se") or 0.0)
    change = abs(new - old) if both_ways else new - old
    moved = change > limit and change > SURE * noise
    yield Finding(name, old, new, moved, f"{what}: {new:.0%} against {old:.0%}")


def _too_long(profile: Profile, trace: Trace) -> Iterator[Finding]:
    length = max_model_len(profile.winner)
    if length is None:
        return
    share = 1.0 - trace.coverage(length)
    then = _number(profile.traffic, "over_max_model_len") or 0.0
    moved = share > OVER_LIMIT and share > then + OVER_LIMIT / 2
    said = f"longer than max-model-len {length:,}: {share:.1%} of the requests against {then:.1%}"
    yield Finding("over_max_model_len", then, share, moved, said)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
