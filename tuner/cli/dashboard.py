"""`kimi-tune dashboard`: a study in optuna-dashboard, with constraints shown right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import VerboseOption
from tuner.cli.output import console
from tuner.errors import EngineUnavailable
from tuner.study import find_study


def dashboard(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="Name or folder; default: the latest one.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0: any free one.")
    ] = 8080,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Whom to listen to; other machines need 0.0.0.0.")
    ] = "127.0.0.1",
    folder: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")
    ] = Path("studies"),
    storage: Annotated[
        str | None, typer.Option("--storage", metavar="URL", help="Optuna storage that holds the study.")
    ] = None,
    verbose: VerboseOption = False,
) -> int:
    """Serve a study in optuna-dashboard: the best trial is the best that meets the SLO, every trial has a
    note with its verdict and cause, its server log and its latency curve, and the study its plots.

    A study that is running is followed. Nothing can be deleted there; notes can be written. It needs
    pip install 'kimi-tune[dashboard]'. Ctrl-C ends it.

    Examples:

      kimi-tune dashboard

      kimi-tune dashboard STUDY --port 8081
    """
    from tuner.report.dashboard import INSTALL, available, serve
    from tuner.report.dashboard.serve import LOOPBACK

    if not available():
        raise EngineUnavailable("optuna-dashboard is not installed", INSTALL)
    place = find_study(study, folder, storage)
    out = console(to_stderr=False)
    if host not in LOOPBACK:
        out.print(
            f"warning: --host {host}: whoever reaches this machine can read this study; there is no password",
            soft_wrap=True,
        )
    try:
        serve(
            place,
            host,
            port,
            lambda url: out.print(f"study {place.name}: {url}  (Ctrl-C ends it)", soft_wrap=True),
            verbose=verbose,
        )
    except KeyboardInterrupt:
        return 0
    return 0
