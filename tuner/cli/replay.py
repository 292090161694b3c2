"""`kimi-tune replay`: measure a running OpenAI-compatible server."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Annotated

import typer

from tuner.cli.measuring import (
    FindMaxOption,
    LoadOption,
    Measurement,
    RateOption,
    SpeedOption,
    StartOption,
    UsersOption,
    WindowOption,
    measure,
)
from tuner.cli.options import (
    JsonOption,
    RequestsOption,
    SeedOption,
    SessionsOption,
    SloOption,
    SloTpotOption,
    SloTtftOption,
    TraceOption,
    VerboseOption,
)
from tuner.cli.output import console
from tuner.cli.setup import trace_of
from tuner.errors import BadRequest
from tuner.replay import (
    ClientOptions,
    Curtailment,
    Replay,
    Workload,
    check_server,
    choose_model,
    replay_http,
    settle,
)
from tuner.replay.plan import MOST_PROCESSES, plan_clients
from tuner.replay.server import reset_prefix_cache
from tuner.replay.warmup import warm_up
from tuner.spec import LoadMode, SessionMode


def replay(
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server: http://127.0.0.1:8000.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Served model; default: the only one there.")
    ] = None,
    trace: TraceOption = None,
    slo_p99: SloOption = None,
    slo_ttft_p99: SloTtftOption = None,
    slo_tpot_p99: SloTpotOption = None,
    find_max: FindMaxOption = False,
    load: LoadOption = LoadMode.RATE,
    sessions: SessionsOption = SessionMode.RECORDED,
    users: UsersOption = None,
    rate: RateOption = None,
    speed: SpeedOption = 1.0,
    window: WindowOption = None,
    start_rps: StartOption = None,
    client_processes: Annotated[
        str,
        typer.Option(
            "--client-processes",
            metavar="N|auto",
            help="Processes that send the load, whole sessions each; auto: as many as it needs.",
        ),
    ] = "auto",
    requests: RequestsOption = 1000,
    seed: SeedOption = 0,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Send a trace to a running server, open loop, and say whether its P99 meets the SLO.

    A few requests of every length warm the server up first. The trace is sent as it is and to its end, with
    prompts that the server has not seen; --find-max searches the highest load that meets the SLO.
    Exit code: 0 PASS or no SLO given, 3 FAIL, 6 CANNOT TELL or INVALID. The API key is taken from
    OPENAI_API_KEY.

    Examples:

      kimi-tune replay --url http://127.0.0.1:8000 --trace trace.jsonl --slo-p99 30s

      kimi-tune replay --url http://127.0.0.1:8000 --slo-p99 30s --find-max --json
    """
    asked = Measurement.of(locals())
    processes = _processes_of(client_processes, asked)
    recorded = trace_of(trace)
    served = choose_model(check_server(url), model, url)
    limits = asked.slo.limits()
    options = ClientOptions(slo_smallest_s=min(limits.values()) if limits else None, processes=processes)
    options = settle(url, served, options)
    if not options.ignore_eos:
        console(to_stderr=True).print("the server takes no ignore_eos: an answer that ends early has failed")
    prompts = _Prompts()

    def send(workload: Workload, stop: Curtailment | None) -> Replay:
        if not prompts.drawn:
            quiet = replace(options, counters=False, processes=1)
            replay_http(url, served, warm_up(workload.trace), options=quiet, seed=prompts.fresh())
        plan = plan_clients(workload, options.processes)
        if plan.processes > 1 or plan.short:
            console(to_stderr=True).print(f"client: {plan}")
        if workload.trace.bodies is not None:
            reset_prefix_cache(url)
        return replay_http(url, served, workload, stop=stop, options=options, seed=prompts.fresh())

    return measure(asked, recorded, send)


class _Prompts:
    """Seeds of drawn prompts, no two alike, in this command or the next: what one replay left in the server's
    prefix cache must not help another. Arrivals and lengths are the user's seed's.
    """

    def __init__(self) -> None:
        self.drawn = 0
        self._salt = secrets.randbits(48) << 16

    def fresh(self) -> int:
        self.drawn += 1
        return self._salt + self.drawn


def _processes_of(text: str, asked: Measurement) -> int | None:
    """The processes asked for; None for as many as the load needs."""
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PROCESSES:
        raise BadRequest(
            f"--client-processes {text}: neither auto nor a number from 1 to {MOST_PROCESSES}",
            "write it like --client-processes 2",
        )
    if int(text) > 1 and asked.load is LoadMode.USERS:
        raise BadRequest(
            f"--client-processes {text}: users take their requests in turn, from one process",
            "leave it out, or offer the load with --load rate",
        )
    return int(text)
