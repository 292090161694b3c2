"""What `replay` and `simulate` share: the options of a measurement, and its result on screen or as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tuner.cli.options import slo_of, window_of
from tuner.cli.output import console, print_json
from tuner.errors import BadRequest, Exit
from tuner.measure import (
    Judgement,
    LoadTest,
    Send,
    Verdict,
    achieved,
    finite,
    judge,
    nearest_rank,
    summarize,
)
from tuner.replay import Curtailment, Replay, Workload
from tuner.report.tracing import change_words
from tuner.report.words import NOTHING, percent, rate, seconds, span
from tuner.spec import LoadMode, SessionMode, Slo
from tuner.study import split
from tuner.traces import Trace, compress_time, window

_EXIT = {
    Verdict.PASS: Exit.OK,
    Verdict.FAIL: Exit.NOTHING_MEETS_SLO,
    Verdict.CANNOT_TELL: Exit.CANNOT_TELL,
    Verdict.INVALID: Exit.CANNOT_TELL,
}
_COUNTED = {
    "requests": "requests",
    "generation_tokens": "output tokens",
    "prompt_tokens": "prompt tokens",
}
"""The server's own counters, and what they count."""
_USERS = 10

FindMaxOption = Annotated[
    bool, typer.Option("--find-max", help="Search the highest load that meets the SLO.")
]
LoadOption = Annotated[
    LoadMode, typer.Option("--load", help="Open loop by arrival times (rate), or a fixed number of users.")
]
UsersOption = Annotated[
    int | None, typer.Option("--users", min=1, help="Users, with --load users; default: 10.")
]
SpeedOption = Annotated[
    float, typer.Option("--speed", min=0.001, help="Play the trace so many times faster.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate", min=0.0001, help="Requests/s to offer, by nested loads of the trace; default: as it is."
    ),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="A:B",
        help="Part of the trace, as fractions; default: all of it, with --find-max the finals' part 0.5:1.",
    ),
]
StartOption = Annotated[
    float | None,
    typer.Option("--start-rps", min=0.0001, help="Where --find-max starts; default: the trace's own rate."),
]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement as asked for on the command line."""

    slo: Slo
    requests: int
    seed: int
    find_max: bool
    load: LoadMode
    sessions: SessionMode
    users: int
    speed: float
    rate_rps: float | None
    window: str | None
    start_rps: float | None
    json: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Measurement:
        """What the options of a command ask for, by the names that `replay` and `simulate` both give them.

        Raises:
            BadRequest: an SLO that is no duration, --find-max without one, causal users, or an option that
                what is asked for does not take.
        """
        slo = slo_of(options["slo_p99"], options["slo_ttft_p99"], options["slo_tpot_p99"])
        if options["find_max"] and not slo.limits():
            raise BadRequest("--find-max: no SLO given", "add one, such as --slo-p99 30s")
        refuse_causal_users(options["sessions"], options["load"])
        _refuse_unused(options)
        same = {field.name: options[field.name] for field in fields(cls) if field.name in options}
        same["users"] = options["users"] or _USERS
        return cls(slo=slo, rate_rps=options["rate"], **same)


def _refuse_unused(options: Mapping[str, Any]) -> None:
    """What would be dropped in silence is refused."""
    users = options["load"] is LoadMode.USERS
    if options["users"] is not None and not users:
        raise BadRequest("--users: an open loop has none", "add --load users, or leave it out")
    if options["start_rps"] is not None and (users or not options["find_max"]):
        raise BadRequest(
            "--start-rps: nothing is searched in requests/s", "give it with --find-max and --load rate"
        )
    if options["rate"] is not None and users:
        raise BadRequest("--rate: users set their own pace", "leave it out, or use --load rate")
    if options["rate"] is not None and options["find_max"]:
        raise BadRequest("--rate: --find-max chooses the loads", "--start-rps says where it starts")


def refuse_causal_users(sessions: SessionMode, load: LoadMode) -> None:
    """Users of a closed loop have no sessions to wait in.

    Raises:
        BadRequest: both are asked for.
    """
    if sessions is SessionMode.CAUSAL and load is LoadMode.USERS:
        raise BadRequest("--sessions causal: a closed loop has no arrival times", "use --load rate")


def measure(asked: Measurement, trace: Trace, send: Send) -> int:
    """Measure and print; returns the exit code of the design."""
    chosen, part = _part(asked, trace)
    if asked.speed != 1.0:
        chosen = compress_time(chosen, asked.speed)
    changes: list[tuple[Replay, tuple[Mapping[str, Any], ...]]] = []

    def noted(workload: Workload, stop: Curtailment | None) -> Replay:
        replay = send(workload, stop)
        changes.append((replay, workload.trace.source.changes))
        return replay

    judgement, figures = _find_max(asked, chosen, noted) if asked.find_max else _once(asked, chosen, noted)
    figures["window"] = list(part)
    figures["changes"] = next(
        ([dict(change) for change in made] for replay, made in changes if replay is judgement.replay), []
    )
    if asked.json:
        print_json(figures)
    else:
        _show(console(to_stderr=False), judgement, asked.slo, figures)
    if not asked.slo.limits():
        return Exit.CANNOT_TELL if judgement.verdict is Verdict.INVALID else Exit.OK
    if asked.find_max:
        found = figures.get("capacity_rps") or figures.get("capacity_users")
        return Exit.OK if found else Exit.NOTHING_MEETS_SLO
    return _EXIT[judgement.verdict]


def _part(asked: Measurement, trace: Trace) -> tuple[Trace, tuple[float, float]]:
    if asked.window is not None:
        part = window_of(asked.window)
        return window(trace, *part), part
    if asked.find_max:
        windows = split(trace, asked.load)
        return windows.finals, windows.finals_span
    return trace, (0.0, 1.0)


def _once(asked: Measurement, trace: Trace, send: Send) -> tuple[Judgement, dict[str, Any]]:
    test = LoadTest(trace, asked.slo, requests=asked.requests, seed=asked.seed, sessions=asked.sessions)
    if asked.load is LoadMode.USERS:
        judgement = test.with_users(send, asked.users, curtail=False)
    elif asked.rate_rps is not None:
        judgement = test.at(send, asked.rate_rps, curtail=False)
    else:
        causal = asked.sessions is SessionMode.CAUSAL
        judgement = judge(send(Workload(trace, causal=causal), None), asked.slo)
    return judgement, summarize(judgement, asked.slo)


def _find_max(asked: Measurement, trace: Trace, send: Send) -> tuple[Judgement, dict[str, Any]]:
    test = LoadTest(trace, asked.slo, requests=asked.requests, seed=asked.seed, sessions=asked.sessions)
    tried = _Tried(asked.load)
    if asked.load is LoadMode.USERS:
        users = test.users(send, asked.users, told=tried)
        judgement = users.tried[users.users] if users.users else users.tried[min(users.tried)]
        figures = summarize(judgement, asked.slo)
        figures |= {"capacity_users": users.users, "replays": len(users.tried), "tried": tried.rows()}
        return judgement, figures
    capacity = test.capacity(send, asked.start_rps, told=tried)
    figures = summarize(capacity.at, asked.slo)
    figures |= {
        "capacity_rps": capacity.rps,
        "capacity_bracket_rps": [edge if math.isfinite(edge) else None for edge in capacity.bracket_rps],
        "replays": len(capacity.probes),
        "tried": tried.rows(),
    }
    return capacity.at, figures


class _Tried:
    """The loads that a search tries: a line for each as it goes, and their figures."""

    def __init__(self, load: LoadMode) -> None:
        self._unit = "users" if load is LoadMode.USERS else "requests/s"
        self._judged: dict[float, Judgement] = {}

    def __call__(self, load: float, judgement: Judgement) -> None:
        self._judged[load] = judgement
        shown = f"{load:.0f}" if self._unit == "users" else rate(load)
        if judgement.replay.stopped:
            p99 = "stopped once the verdict was certain"
        else:
            p99 = f"P99 of {judgement.metric} {seconds(judgement.p99_s)}"
        held = f"{judgement.requests:,} requests, {span(judgement.replay.engine_s)}"
        verdict = "meets the SLO" if judgement.passes else "misses it"
        console(to_stderr=True).print(f"{shown} {self._unit}: {verdict}, {p99} ({held})", soft_wrap=True)

    def rows(self) -> list[dict[str, Any]]:
        """The figures by ascending load."""
        return [_row(load, judgement, self._unit) for load, judgement in sorted(self._judged.items())]


def _row(load: float, judgement: Judgement, unit: str) -> dict[str, Any]:
    e2e = judgement.replay.e2e_s()
    answered = e2e[np.isfinite(e2e)]
    stopped = judgement.replay.stopped
    rps, tokens_per_s, _ = achieved(judgement.replay)
    return {
        ("users" if unit == "users" else "load_rps"): load,
        "passes": judgement.passes,
        "stopped": stopped,
        "achieved_rps": finite(rps) if not stopped else None,
        "output_tps": finite(tokens_per_s) if not stopped else None,
        "e2e_mean_s": finite(float(answered.mean())) if len(answered) and not stopped else None,
        "e2e_p99_s": finite(nearest_rank(e2e, 0.99)),
        "attainment": finite(judgement.attainment) if not stopped else None,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    users = "users" in rows[0]
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = (
        "users" if users else "offered/s",
        "requests/s",
        "output tokens/s",
        "mean",
        "P99",
        "within the SLO",
    )
    for head in heads:
        table.add_column(head, justify="right")
    table.add_column("")
    for row in rows:
        share = row["attainment"]
        table.add_row(
            f"{row['users']:,}" if users else rate(row["load_rps"]),
            rate(row["achieved_rps"] or 0.0) if not row["stopped"] else NOTHING,
            f"{row['output_tps'] or 0:,.0f}" if not row["stopped"] else NOTHING,
            _latency(row["e2e_mean_s"]),
            "stopped" if row["stopped"] else _latency(row["e2e_p99_s"]),
            percent(share) if share is not None else NOTHING,
            "meets it" if row["passes"] else "misses it",
        )
    return table


def _show(out: Console, judgement: Judgement, slo: Slo, figures: dict[str, Any]) -> None:
    if figures["simulated"]:
        out.print("SIMULATED: a prediction, no server was asked", style="yellow")
    if "capacity_rps" in figures:
        low, high = figures["capacity_bracket_rps"]
        above = f"{rate(high)} misses it" if high is not None else "nothing higher was tried"
        out.print(f"capacity {rate(low)} requests/s ({above}; {figures['replays']} replays)", style="bold")
    elif "capacity_users" in figures:
        out.print(f"capacity {figures['capacity_users']} users ({figures['replays']} replays)", style="bold")
    if figures.get("tried"):
        out.print(_table(figures["tried"]))
    out.print(f"{judgement.verdict.value}: {judgement.reason}", style="bold")
    offered = figures["offered_rps"]
    out.print(
        f"requests {figures['requests']:,}, failed {figures['failed']:,}, offered "
        f"{rate(offered) if offered else '-'} requests/s, achieved {rate(figures['achieved_rps'] or 0)} "
        f"requests/s, {figures['output_tps'] or 0:,.0f} output tokens/s"
    )
    if slo.limits():
        out.print(
            f"within the SLO {percent(figures['attainment'])} of the requests, goodput "
            f"{rate(figures['goodput_rps'] or 0)} requests/s"
        )
    for label, key in (("E2E", "e2e_s"), ("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("lag", "lag_s")):
        row = figures[key]
        cells = "  ".join(f"{name} {_latency(row[name])}" for name in row if name != "p99_interval")
        out.print(f"{label:5s} {cells}")
    if figures["tokens_estimated"]:
        out.print("the answers carry no usage: tokens are counted as one a chunk", style="yellow")
    for text, count in figures["errors"].items():
        out.print(f"error {count} x {text}")
    server = figures["server"]
    if server is not None:
        counted = [f"{server[key]:,} {noun}" for key, noun in _COUNTED.items() if server[key] is not None]
        out.print(f"server counted {', '.join(counted)}")
        if server["mismatch"]:
            out.print(f"MISMATCH: {server['mismatch']}", style="yellow")
    for change in figures["changes"]:
        if "dispersion_after" not in change:  # how a trace was made is no change to it
            continue
        out.print(f"trace changed: {change_words(change)}", soft_wrap=True)


def _latency(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.2f} ms" if value < 0.1 else seconds(value)
