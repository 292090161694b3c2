"""`kimi-tune check`: whether a profile still fits today's traffic and this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JsonOption, VerboseOption
from tuner.cli.output import console, print_json
from tuner.errors import Exit
from tuner.hardware import detect, driver_version
from tuner.profiles import Check, Here, Profile, check_profile, load_profile
from tuner.space import find_vllm
from tuner.space.flags import parse_version
from tuner.study import profile_path
from tuner.traces import load_trace


def check(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="Name of a study, its folder, or a profile file.")
    ],
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Recent traffic; without it only versions are compared."
        ),
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option("--vllm-version", metavar="X.Y.Z", help="vLLM to deploy; default: the one found here."),
    ] = None,
    vllm_python: Annotated[
        str | None, typer.Option("--vllm-python", metavar="PATH", help="The interpreter that has vLLM.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")
    ] = Path("studies"),
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Say whether a profile still fits: exit 0, or 3 and what has moved where to tune again is better.

    Example:

      kimi-tune check a100-80g-kimi-k2.6-awq-1a2b3c4d --trace this-week.jsonl
    """
    kept = load_profile(profile_path(profile, folder))
    here = here_of(kept, vllm_version, vllm_python)
    result = check_profile(kept, load_trace(trace) if trace is not None else None, here)
    if json:
        print_json(check_object(kept, result))
    else:
        out = console(to_stderr=False)
        for line in check_lines(result):
            out.print(line, soft_wrap=True, markup=False, highlight=False)
    return Exit.OK if result.fits else Exit.NOTHING_MEETS_SLO


def here_of(profile: Profile, vllm_version: str | None, vllm_python: str | None) -> Here:
    """What is on this machine. A simulated profile names no driver, and is often checked where no GPU is."""
    if vllm_version is not None:
        parse_version(vllm_version)
    else:
        installed = find_vllm(vllm_python)
        vllm_version = installed.version if installed else None
    gpus = detect()
    same = next((gpu for gpu in gpus if profile.gpu in (gpu.name, gpu.label)), gpus[0] if gpus else None)
    here = Here(vllm_version=vllm_version, driver=driver_version(), gpu=same.label if same else None)
    return here if profile.driver is not None else replace(here, driver=None)


def check_lines(result: Check) -> list[str]:
    """What was compared, a line each, moved ones marked, and the verdict."""
    lines = [f"{'!' if finding.moved else ' '} {finding.said}" for finding in result.findings]
    if result.fits:
        return [*lines, "The profile still fits."]
    return [*lines, f"Tune again: {'; '.join(result.reasons)}"]


def check_object(profile: Profile, result: Check) -> dict[str, object]:
    """The same for `--json`."""
    return {
        "study": profile.study,
        "fits": result.fits,
        "reasons": list(result.reasons),
        "findings": [finding.to_json() for finding in result.findings],
    }
