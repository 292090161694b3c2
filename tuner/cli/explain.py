"""`kimi-tune explain`: what a vLLM log says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import JsonOption, VerboseOption
from tuner.cli.output import console, print_json


def explain(
    log: Annotated[
        Path, typer.Argument(metavar="LOGFILE", help="Stdout and stderr of a vLLM server; - reads stdin.")
    ],
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Say whether a vLLM server came up, why not, and how to mend it.

    Examples:

      kimi-tune explain studies/STUDY/trials/3/server.log

      docker logs vllm 2>&1 | kimi-tune explain -
    """
    from tuner.engines.vllm.logs import read_log, read_log_file

    report = read_log(sys.stdin.buffer) if str(log) == "-" else read_log_file(log)
    if json:
        print_json(report.to_json())
    else:
        console(to_stderr=False).print("\n".join(report.lines(verbose)), soft_wrap=True)
    return 0
