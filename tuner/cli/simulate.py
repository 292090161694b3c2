"""`kimi-tune simulate`: what a configuration is predicted to do with a trace."""

from __future__ import annotations

from pathlib import Path

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
    DEFAULT_MODEL,
    GpuOption,
    JsonOption,
    ModelOption,
    RequestsOption,
    SeedOption,
    SessionsOption,
    SetOption,
    SloOption,
    SloTpotOption,
    SloTtftOption,
    TraceOption,
    VerboseOption,
    VersionOption,
    fixed_of,
)
from tuner.cli.setup import checked_flags, find_place, simulated_engine, trace_of
from tuner.engines.base import LaunchFailure
from tuner.errors import Infeasible
from tuner.models import find_model
from tuner.space import LaunchConfig, check_feasible
from tuner.spec import EngineChoice, LoadMode, SessionMode


def simulate(
    gpu: GpuOption = "auto",
    model: ModelOption = DEFAULT_MODEL,
    trace: TraceOption = None,
    settings: SetOption = None,
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
    requests: RequestsOption = 1000,
    seed: SeedOption = 0,
    vllm_version: VersionOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Predict what a configuration does with a trace: the same figures as replay, and no server.

    The trace is sent as it is; --rate offers another load, --find-max searches the highest that meets the
    SLO.

    Examples:

      kimi-tune simulate --gpu A100-80G --set max-num-seqs=512 --slo-p99 30s --find-max

      kimi-tune simulate --gpu H100-80G --trace trace.jsonl --rate 4 --json
    """
    asked = Measurement.of(locals())
    place = find_place(gpu, EngineChoice.SIM, vllm_version)
    shape = find_model(model)
    flags = fixed_of(settings)
    checked_flags(place, flags)
    check_feasible(place.gpu, shape, place.vllm_version)
    recorded = trace_of(trace)
    try:
        with simulated_engine(place, shape, seed).launch(LaunchConfig.of(flags), Path()) as server:
            return measure(asked, recorded, server.replay)
    except LaunchFailure as failure:
        raise Infeasible(
            f"this configuration cannot start ({failure.kind}): {failure.cause}", failure.mend
        ) from failure
