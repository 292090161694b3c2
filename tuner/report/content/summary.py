"""The top of the report: what to deploy, by how much, and what to beware of."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tuner.profiles.profile import Measured
from tuner.report.content.money import per_thousand_requests
from tuner.report.content.view import View
from tuner.report.page.blocks import Block, Code, Figure, Figures, Mono, Text
from tuner.report.words import changes, duration, gain, interval, latency, limits_text, rate, seconds
from tuner.space import quality_flags
from tuner.study.kept import RUNNING


def summary(view: View) -> tuple[Block, ...]:
    """Figures, the command to deploy, and what qualifies them."""
    return tuple(_blocks(view))


def _blocks(view: View) -> Iterator[Block]:
    study, result = view.study, view.result
    if study.simulated:
        yield Text(
            f"SIMULATED: every figure is a prediction for vLLM on {study.job.get('gpu', 'this GPU')}, to be "
            "confirmed on the GPU.",
            "warn",
        )
    if result is None:
        yield from _unfinished(view)
        return
    yield Text(f"The SLO: {limits_text(result.slo)}, over all requests, failures counted as over.")
    if result.winner is not None:
        yield Figures(tuple(_figures(view, result.winner)))
        if result.recommendation == "default":
            yield Text(
                "Nothing that was tried beats vLLM's own defaults by more than one step of the load grid "
                "(5%). Deploy without flags of your own.",
                "good",
            )
        yield Code(shlex.join(result.winner.command), "Start it with")
    elif result.closest:
        yield Text(result.closest[:1].upper() + result.closest[1:] + ".", "bad")
    yield from _warnings(view)


def _unfinished(view: View) -> Iterator[Block]:
    study = view.study
    best, baseline = study.best, study.baseline
    if study.state == RUNNING:
        yield Text("The study is still running; these are its figures so far, without finals.", "warn")
    else:
        yield Text(
            "The study was interrupted before its finals. The command under “Reproduce” goes on where "
            "it stopped.",
            "warn",
        )
    yield Text(f"The SLO: {limits_text(study.job.get('slo', {}))}.")
    if best is not None:
        items = [Figure("best so far", f"{rate(best.value or 0.0)} {study.unit}", f"trial {best.number + 1}")]
        if baseline is not None and baseline.value:
            over = gain((best.value or 0.0) / baseline.value)
            items.append(Figure("over vLLM's defaults", over, "in the search, not confirmed by finals"))
        items.append(Figure("its P99", seconds(best.attrs.get("p99_s")), "at that load"))
        yield Figures(tuple(items))
        yield Text(["Its flags: ", Mono(changes(best.changed))])


def _figures(view: View, winner: Measured) -> Iterator[Figure]:
    result, profile = view.result, view.profile
    assert result is not None
    if view.by_users:
        yield Figure("users within the SLO", f"{winner.users:,}", f"{rate(winner.throughput_rps)} requests/s")
    else:
        remark = "on traffic that the search did not see"
        yield Figure("load within the SLO", f"{rate(winner.throughput_rps)} requests/s", remark)
    if result.recommendation == "tuned":
        bounds = profile.gain_interval if profile else None
        told = bounds is not None and bounds[0] < bounds[1]
        remark = (
            f"95% interval {gain(bounds[0])} to {gain(bounds[1])}" if bounds and told else "in the finals"
        )
        tone = "good" if result.gain is None or result.gain > 1.0 else ""
        value = gain(result.gain) if result.gain is not None else "from 0"
        yield Figure("over vLLM's defaults", value, remark, tone)
    metric, limit = _nearest(view, winner)
    yield Figure(
        f"P99 of {metric}",
        latency(winner.p99_s),
        f"SLO {duration(limit)}; {interval(*winner.p99_interval_s)}",
    )
    if winner.users and not view.by_users:
        yield Figure("concurrent users", f"{winner.users:,}", "without think time, within the SLO")
    price = per_thousand_requests(view, winner)
    if price:
        yield Figure("cost of 1,000 requests", price)


def _nearest(view: View, winner: Measured) -> tuple[str, float]:
    """The metric that the winner's P99 belongs to: the one whose limit is nearest to it."""
    limits = view.study.limits
    if winner.p99_s is None or len(limits) == 1:
        name = next(iter(limits))
        return name.upper(), limits[name]
    replay = view.replay_at(view.tuned_replays or view.default_replays, _load(view, winner))
    for name, limit in limits.items():
        found = (replay.get(f"{name}_s") or {}).get("p99")
        if found is not None and abs(found - winner.p99_s) <= 1e-5 * max(found, 1e-9):
            return name.upper(), limit
    name = max(limits, key=lambda key: limits[key])
    return name.upper(), limits[name]


def _load(view: View, measured: Measured) -> float:
    return float(measured.users) if view.by_users else measured.throughput_rps


def _warnings(view: View) -> Iterator[Block]:
    result, profile = view.result, view.profile
    assert result is not None
    if result.winner is not None and (named := quality_flags(result.winner.flags)):
        yield Text(
            [Mono(", ".join(named)), " can change the answers' quality: check them before you deploy."],
            "warn",
        )
    if note := result.baseline.note:
        yield Text(f"About the defaults: {note}.", "warn")
    if profile is not None and profile.drift is not None and profile.drift.excessive:
        drift = profile.drift
        yield Text(
            f"The machine drifted during the finals: the default alone differed by {drift.relative:.1%} "
            f"between its launches (up to {drift.limit:.1%} is usual).",
            "bad",
        )
    if profile is not None and profile.brittle:
        yield Text(f"Brittle: {profile.brittle}", "warn")
    if count := len(view.invalid()):
        replays = "1 replay proves" if count == 1 else f"{count} replays prove"
        yield Text(f"{replays} nothing: see “Replays that prove nothing”.", "warn")
