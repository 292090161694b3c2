"""What stands behind the recommendation: finals, what each flag gave, ties, sensitivity."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.profiles.profile import Profile
from tuner.report.content.pictures import flag_gains
from tuner.report.content.view import View
from tuner.report.page.blocks import Block, Column, Mono, Picture, Section, Table, Text
from tuner.report.words import changes, flag_value, gain, interval, latency, rate


def finals_section(view: View) -> Section | None:
    """The launches of the finals in the order of time."""
    profile = view.profile
    if profile is None or not profile.finals:
        return None
    rows = tuple(
        (r.label, str(r.launch), rate(r.load_rps), latency(r.p99_s), interval(*r.interval_s), r.verdict)
        for r in profile.finals
    )
    columns = ("configuration", "launch", f"load, {view.study.unit}", "P99", "95% interval", "verdict")
    table = Table(
        "Replays of the finals",
        tuple(Column(c, c not in ("configuration", "verdict")) for c in columns),
        rows,
    )
    blocks: list[Block] = [
        Text(
            "Fresh launches, default and contenders in turn, on a part of the trace that the search did not "
            "see."
        )
    ]
    if profile.drift is not None:
        loads = ", ".join(rate(load) for load in profile.drift.loads_rps)
        blocks.append(
            Text(
                f"The default on its launches carried {loads} {view.study.unit}: a spread of "
                f"{profile.drift.relative:.1%}, where up to {profile.drift.limit:.1%} is usual."
            )
        )
    return Section("finals", "The finals", (*blocks, table))


def flags_section(view: View) -> Section | None:
    """What each changed flag gave."""
    chart = flag_gains(view)
    if chart is None:
        return None
    gains = sorted(view.flag_gains, key=lambda g: -g.gain)
    rows = tuple((Mono(g.flag), Mono(flag_value(g.value)), f"{g.gain:+.1%}", g.source) for g in gains)
    columns = (Column("flag", False), Column("value"), Column("share of the load"), Column("by", False))
    text = "Each flag put back to vLLM's default alone: the share of the load that goes."
    return Section(
        "flags", "What each flag gave", (Text(text), Picture(chart), Table("Flag by flag", columns, rows))
    )


def ties_section(view: View) -> Section | None:
    """The configurations that cannot be told apart from the winner."""
    profile = view.profile
    if profile is None or not profile.ties:
        return None
    rows = tuple((Mono(changes(t.flags)), rate(t.throughput_rps), str(len(t.changed))) for t in profile.ties)
    columns = (
        Column("flags", False), Column(f"load, {view.study.unit}"), Column("flags away from the defaults")
    )  # fmt: skip
    text = (
        "The measurements cannot tell these from the recommended one. Of all of them the one nearest to "
        "vLLM's defaults is recommended."
    )
    return Section("ties", "Just as good", (Text(text), Table("The tied set", columns, rows)))


def sensitivity_section(view: View) -> Section | None:
    """How the gain holds when SLO or traffic shift."""
    profile = view.profile
    if profile is None or not (profile.sensitivity or profile.separate or profile.brittle):
        return None
    return Section("sensitivity", "If things change", tuple(_sensitivity(profile)))


def _sensitivity(profile: Profile) -> Iterator[Block]:
    if profile.brittle:
        yield Text(f"Brittle: {profile.brittle}", "warn")
    if profile.sensitivity:
        rows = tuple(
            (
                s.name,
                rate(s.default_rps),
                rate(s.tuned_rps),
                gain(s.tuned_rps / s.default_rps) if s.default_rps > 0 else "-",
                s.source,
            )
            for s in profile.sensitivity
        )
        columns = ("if", "default, requests/s", "tuned, requests/s", "gain", "by")
        yield Table(
            "Capacity under another SLO or another traffic",
            tuple(Column(c, c not in ("if", "by")) for c in columns),
            rows,
        )
    if (apart := profile.separate) is not None:
        both = apart.short_rps + apart.long_rps
        yield Text(
            f"A queue of its own for prompts of {apart.split_tokens:,} tokens and more "
            f"({apart.long_share:.1%} of the requests): {rate(apart.short_rps)} requests/s for the short and "
            f"{rate(apart.long_rps)} for the long on a server each ({rate(both)} in all on two), against "
            f"{rate(apart.together_rps)} together on one."
        )
