"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
import yaml

from tuner.errors import BadRequest
from tuner.spec import FlagValue, SessionMode, Slo, parse_duration_s

DEFAULT_MODEL = "kimi-k2.6-awq"

GpuOption = Annotated[
    str, typer.Option("--gpu", metavar="NAME", help="GPU: A100-80G, 2xH100-80G, cpu; auto is the one here.")
]
ModelOption = Annotated[
    str, typer.Option("--model", metavar="MODEL", help="Hub id, folder with config.json, or catalogue name.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Recorded traffic; default: the one that ships."),
]
SloOption = Annotated[
    str | None,
    typer.Option("--slo-p99", metavar="TIME", help="Limit on P99 end-to-end latency, such as 30s."),
]
SloTtftOption = Annotated[
    str | None, typer.Option("--slo-ttft-p99", metavar="TIME", help="Limit on P99 time to first token.")
]
SloTpotOption = Annotated[
    str | None, typer.Option("--slo-tpot-p99", metavar="TIME", help="Limit on P99 time per output token.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FLAG=VALUE", help="Fix a vLLM flag; the value is read as YAML. Repeatable."
    ),
]
RequestsOption = Annotated[int, typer.Option("--requests", min=1, help="Requests in a replay, at the least.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
SessionsOption = Annotated[
    SessionMode,
    typer.Option(
        "--sessions",
        help="causal: no turn before the answer to the one before has ended and its user has thought.",
    ),
]
VersionOption = Annotated[
    str | None,
    typer.Option(
        "--vllm-version", metavar="X.Y.Z", help="vLLM to simulate; default: the installed one, else 0.21.0."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Say more, and show tracebacks.")]
GpuCostOption = Annotated[
    str | None,
    typer.Option("--gpu-cost", metavar="PRICE", help="Price of one GPU, such as 2.5USD/h or 14000CNY/month."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Only the result.")]


def slo_of(e2e: str | None, ttft: str | None, tpot: str | None) -> Slo:
    """The SLO from its three options.

    Raises:
        BadRequest: one of them is not a duration.
    """
    return Slo(
        e2e_p99_s=parse_duration_s(e2e, what="--slo-p99") if e2e else None,
        ttft_p99_s=parse_duration_s(ttft, what="--slo-ttft-p99") if ttft else None,
        tpot_p99_s=parse_duration_s(tpot, what="--slo-tpot-p99") if tpot else None,
    )


def fixed_of(settings: Iterable[str] | None) -> dict[str, FlagValue]:
    """The flags that `--set` fixes.

    Raises:
        BadRequest: not FLAG=VALUE, not YAML, or a flag twice.
    """
    fixed: dict[str, FlagValue] = {}
    for text in settings or ():
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("--")
        if not equals or not name:
            raise BadRequest(f"--set {text}: not FLAG=VALUE", "write it like --set max-num-seqs=256")
        if name in fixed:
            raise BadRequest(f"--set {name}: given twice", "keep one")
        try:
            fixed[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise BadRequest(
                f"--set {text}: the value is not YAML", "quote it, as in \"--set x='[1, 2]'\""
            ) from error
    return fixed


def window_of(text: str) -> tuple[float, float]:
    """A part of the trace as fractions of its length: "0.5:1".

    Raises:
        BadRequest: not two ascending numbers between 0 and 1.
    """
    low, colon, high = text.partition(":")
    try:
        window = float(low), float(high)
    except ValueError:
        window = (1.0, 0.0)
    if not colon or not 0.0 <= window[0] < window[1] <= 1.0:
        raise BadRequest(f"--window {text}: not a part of the trace", "write it like 0.5:1, the second half")
    return window
