"""`kimi-tune export`: the recommendation as a file that deploys."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import GpuCostOption, VerboseOption
from tuner.errors import BadRequest
from tuner.profiles import export as export_profile
from tuner.profiles import formats, load_profile, parse_gpu_cost
from tuner.study import profile_path


def export(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Name of a study, its folder, or a profile file.")
    ],
    format: Annotated[
        str, typer.Option("--format", metavar="|".join(formats()), help="What to write.")
    ] = "vllm",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: stdout.")] = None,
    folder: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")
    ] = Path("studies"),
    gpu_cost: GpuCostOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Write a study's recommendation as a vLLM config, a script, or another form that deploys.

    Examples:

      kimi-tune export STUDY --format vllm --out vllm.yaml && vllm serve --config vllm.yaml

      kimi-tune export STUDY --format kubernetes | kubectl apply -f -
    """
    if format not in formats():
        raise BadRequest(f"--format {format}: unknown", f"choose one of {', '.join(formats())}")
    profile = load_profile(profile_path(study, folder))
    if gpu_cost is not None:
        profile = replace(profile, cost=parse_gpu_cost(gpu_cost))
    text = export_profile(profile, format)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text)
    return 0
