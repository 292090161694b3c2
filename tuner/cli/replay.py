"""`kimi-tune replay`: measure a running OpenAI-compatible server."""

from __future__ import annotations

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
    SloOption,
    SloTpotOption,
    SloTtftOption,
    TraceOption,
    VerboseOption,
    slo_of,
)
from tuner.cli.setup import trace_of
from tuner.replay import (
    ClientOptions,
    Curtailment,
    Replay,
    Workload,
    check_server,
    choose_model,
    probe_endpoint,
    replay_http,
)
from tuner.spec import LoadMode


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
    users: UsersOption = 10,
    rate: RateOption = None,
    speed: SpeedOption = 1.0,
    window: WindowOption = None,
    start_rps: StartOption = None,
    requests: RequestsOption = 1000,
    seed: SeedOption = 0,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Send a trace to a running server, open loop, and say whether its P99 meets the SLO.

    The trace is sent as it is and to its end; --find-max searches the highest load that meets the SLO.
    Exit code: 0 PASS or no SLO given, 3 FAIL, 6 CANNOT TELL or INVALID. The API key is taken from
    OPENAI_API_KEY.

    kimi-tune replay --url http://127.0.0.1:8000 --trace trace.jsonl --slo-p99 30s
    """
    asked = Measurement(
        slo=slo_of(slo_p99, slo_ttft_p99, slo_tpot_p99),
        requests=requests,
        seed=seed,
        find_max=find_max,
        load=load,
        users=users,
        speed=speed,
        rate_rps=rate,
        window=window,
        start_rps=start_rps,
        json=json,
    )
    asked.check()
    recorded = trace_of(trace)
    served = choose_model(check_server(url), model, url)
    limits = asked.slo.limits()
    options = ClientOptions(
        endpoint=probe_endpoint(url, served), slo_smallest_s=min(limits.values()) if limits else None
    )
    sent = 0

    def send(workload: Workload, stop: Curtailment | None) -> Replay:
        nonlocal sent
        sent += 1
        # another seed each time: what one replay left in the server's prefix cache must not help the next
        return replay_http(url, served, workload, stop=stop, options=options, seed=seed * 1000 + sent)

    return measure(asked, recorded, send)
