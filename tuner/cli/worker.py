"""`kimi-tune worker`: measures for a tuner on another host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.cli.interrupt import interruptible
from tuner.cli.options import QuietOption, VerboseOption
from tuner.cli.output import console
from tuner.cli.setup import AUTO
from tuner.cli.slots import Where, parse_parallel
from tuner.cli.tune import make_job
from tuner.errors import BadRequest, Exit
from tuner.hardware import card_of, detect
from tuner.report.console import watching
from tuner.spec import EngineChoice, LoadMode, Slo, TuneSpec, parse_duration_s
from tuner.study import StudyPlace, join_study, work


def worker(
    study: Annotated[str, typer.Option("--study", metavar="NAME", help="The study to work for.")],
    storage: Annotated[str, typer.Option("--storage", metavar="URL", help="The storage that it lies in.")],
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="The study's trace, where it is here.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The study's model, where it is here.")
    ] = None,
    parallel: Annotated[
        str, typer.Option("--parallel", metavar="auto|N", help="Trials at a time, as of the tune job.")
    ] = "1",
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="End where no tuner has run for so long.")
    ] = "1h",
    studies: Annotated[
        Path, typer.Option("--studies", metavar="FOLDER", help="Where logs of its launches are kept.")
    ] = Path("studies"),
    vllm_python: Annotated[
        str | None, typer.Option("--vllm-python", metavar="PATH", help="The interpreter that has vLLM.")
    ] = None,
    launcher: Annotated[str, typer.Option("--launcher", metavar="HOW", help="As of the tune job.")] = AUTO,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Measure trials for a study that kimi-tune runs on another host; ends when the study has.

    The GPU has to be of the same kind, trace and model the same by their digests.

    Example:

      kimi-tune worker --study chat --storage postgresql://host/optuna --trace trace.jsonl
    """
    place = StudyPlace(study, studies, storage)
    if not place.shared:
        raise BadRequest(
            f"--storage {storage}: SQLite is for one host", "use PostgreSQL, MySQL or grpc://HOST:PORT"
        )
    out = console(to_stderr=False)
    with interruptible(), watching(out, verbose=verbose, quiet=quiet) as observer:
        found = join_study(place, observer.note)
        spec = spec_of(found.user_attrs.get("job") or {}, trace, model)
        job, engine = make_job(
            spec, vllm_python, launcher, parallel=parse_parallel(parallel), where=Where(shared=True)
        )
        try:
            done = work(
                job,
                place,
                found,
                observer,
                parallel=job.parallel,
                idle_s=parse_duration_s(idle, what="--idle"),
            )
        finally:
            if job.slots is not None:
                job.slots.close()
            engine.close()
    if not quiet:
        out.print(f"study {study}: {done} trials measured here", soft_wrap=True)
    return Exit.OK


def spec_of(job: dict[str, Any], trace: Path | None, model: str | None) -> TuneSpec:
    """The study's job as this host can run it.

    Raises:
        BadRequest: the study is not there yet, or this host lacks its GPU.
    """
    if not job:
        raise BadRequest("that study holds no job", "start the tuner first: kimi-tune --study … --storage …")
    simulated = job["engine"] == "sim"
    return TuneSpec(
        gpu=job["gpu"] if simulated else _gpu_here(job["gpu"]),
        slo=Slo(**job["slo"]),
        model=model or job["model"],
        trace=trace or (Path(job["trace"]) if job["trace"] else None),
        engine=EngineChoice(job["engine"]),
        fixed=job["fixed"],
        load=LoadMode(job["load"]),
        requests=job["requests"],
        coverage=job["coverage"],
        seed=job["seed"],
        vllm_version=job["vllm_version"],
    )


def _gpu_here(label: str) -> str:
    wanted = card_of(label)
    if wanted == "cpu":
        return wanted
    here = detect()
    for gpu in here:
        if gpu.name == wanted:
            return gpu.label
    found = ", ".join(gpu.label for gpu in here) or "none"
    raise BadRequest(f"the study is of {wanted}, which is not here (found: {found})", "work on such a host")
