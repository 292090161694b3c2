"""`kimi-tune [OPTIONS]`: the tune job."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.cli.interrupt import interruptible
from tuner.cli.measuring import refuse_causal_users
from tuner.cli.options import (
    DEFAULT_MODEL,
    GpuCostOption,
    GpuOption,
    JsonOption,
    ModelOption,
    QuietOption,
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
    slo_of,
)
from tuner.cli.output import console, print_json, show_version
from tuner.cli.setup import AUTO, Place, engine_at, predictor_of, prepare
from tuner.cli.slots import Executor, Where, make_slots, parse_parallel, space_gpu
from tuner.engines.base import Engine
from tuner.errors import BadRequest, Exit
from tuner.hardware import describe_machine, driver_version
from tuner.profiles import GpuCost, cost_lines, cost_object, parse_gpu_cost, save_profile
from tuner.report.console import plan_lines, print_result, watching
from tuner.report.files import write_report
from tuner.report.results import plan_object, result_object
from tuner.space import effective_defaults, quality_flags
from tuner.spec import Budget, EngineChoice, LoadMode, SessionMode, TuneSpec, parse_duration_s
from tuner.study import Job, StudyPlace, TuneResult, fresh_name, make_plan, read_study, study_name
from tuner.study import tune as run_study

EngineOption = Annotated[
    EngineChoice,
    typer.Option("--engine", help="auto takes vLLM where it and the GPU are here, else the simulator."),
]
SpaceOption = Annotated[
    Path | None, typer.Option("--space", metavar="FILE", help="Search space in YAML; default: by GPU.")
]
LoadOption = Annotated[
    LoadMode, typer.Option("--load", help="Open loop by arrival times (rate), or closed loop (users).")
]
CoverageOption = Annotated[
    float | None,
    typer.Option("--coverage", min=0.01, max=1.0, help="Share of the trace that max-model-len must hold."),
]
TrialsOption = Annotated[int, typer.Option("--trials", min=1, help="Launches of the search, at the most.")]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", metavar="TIME", help="Engine time, at the most, such as 2h.")
]
StudyOption = Annotated[
    str | None, typer.Option("--study", metavar="NAME", help="Name of the study; default: made from the job.")
]
StudiesOption = Annotated[Path, typer.Option("--studies", metavar="FOLDER", help="Where studies are kept.")]
StorageOption = Annotated[
    str | None,
    typer.Option("--storage", metavar="URL", help="Optuna storage; default: study.db in the study."),
]
NewOption = Annotated[
    bool, typer.Option("--new", help="Start another study instead of showing the finished one.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan and launch nothing.")]
PythonOption = Annotated[
    str | None, typer.Option("--vllm-python", metavar="PATH", help="The interpreter that has vLLM.")
]
LauncherOption = Annotated[
    str,
    typer.Option(
        "--launcher",
        metavar="HOW",
        help="auto, warm (forked from one import), plain, or a command: 'vllm serve', 'docker run … {args}'.",
    ),
]
ParallelOption = Annotated[
    str,
    typer.Option(
        "--parallel",
        metavar="auto|N",
        help="Trials at a time, each on GPUs of its own; auto: as many as the GPUs hold.",
    ),
]
ExecutorOption = Annotated[
    Executor, typer.Option("--executor", help="Where trials run: on this machine, or on a Ray cluster.")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option("--ray-address", metavar="ADDRESS", help="The Ray cluster; default: the one here."),
]
ShowVersionOption = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version and exit.")
]
QualityOption = Annotated[
    bool,
    typer.Option(
        "--allow-quality-flags", help="Search flags that can change the answers too, such as an fp8 KV cache."
    ),
]


def tune(
    ctx: typer.Context,
    gpu: GpuOption = "auto",
    slo_p99: SloOption = None,
    slo_ttft_p99: SloTtftOption = None,
    slo_tpot_p99: SloTpotOption = None,
    model: ModelOption = DEFAULT_MODEL,
    trace: TraceOption = None,
    engine: EngineOption = EngineChoice.AUTO,
    space: SpaceOption = None,
    settings: SetOption = None,
    load: LoadOption = LoadMode.RATE,
    sessions: SessionsOption = SessionMode.RECORDED,
    requests: RequestsOption = 1000,
    coverage: CoverageOption = None,
    trials: TrialsOption = 16,
    budget: BudgetOption = None,
    study: StudyOption = None,
    studies: StudiesOption = Path("studies"),
    storage: StorageOption = None,
    new: NewOption = False,
    parallel: ParallelOption = "1",
    executor: ExecutorOption = Executor.LOCAL,
    ray_address: RayAddressOption = None,
    seed: SeedOption = 0,
    vllm_version: VersionOption = None,
    vllm_python: PythonOption = None,
    launcher: LauncherOption = AUTO,
    allow_quality_flags: QualityOption = False,
    gpu_cost: GpuCostOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    version: ShowVersionOption = False,
) -> int:
    """Find the vLLM launch flags that carry the most of your traffic on your GPU within a P99 SLO.

    It plans, launches at most --trials configurations, replays your trace against each, confirms the best on
    fresh launches beside the defaults, and writes a profile and a report into studies/NAME. Without a
    matching GPU and vLLM it predicts, and says SIMULATED. Ctrl-C is safe: the same command goes on.

    What next: kimi-tune report (read it), kimi-tune export (deploy it), kimi-tune dashboard (look closer).

    Examples:

      kimi-tune --gpu A100-80G --slo-p99 30s

      kimi-tune --gpu auto --slo-p99 30s --model meta-llama/Llama-3.1-8B --trace trace.jsonl

      kimi-tune --gpu 2xH100-80G --slo-ttft-p99 2s --set max-num-seqs=128 --dry-run

    Exit codes: 0 a recommendation, or keep the defaults; 2 the request is wrong; 3 nothing meets the SLO;
    4 cannot work by arithmetic; 5 the engine cannot run here; 130 interrupted.
    """
    given = [name for name in ctx.params if _given(ctx, name)]
    if ctx.invoked_subcommand is not None:
        if given:
            option = "--" + given[0].replace("_", "-")
            raise BadRequest(
                f"{option} stands before the subcommand {ctx.invoked_subcommand}",
                "put options after the subcommand",
            )
        return Exit.OK
    if not given:
        typer.echo(ctx.get_help())
        return Exit.OK
    slo = slo_of(slo_p99, slo_ttft_p99, slo_tpot_p99)
    if not slo.limits():
        raise BadRequest("no SLO given", "add one, such as --slo-p99 30s")
    refuse_causal_users(sessions, load)
    price = parse_gpu_cost(gpu_cost) if gpu_cost is not None else None
    spec = TuneSpec(
        gpu=gpu,
        slo=slo,
        model=model,
        trace=trace,
        engine=engine,
        space=space,
        fixed=fixed_of(settings),
        load=load,
        sessions=sessions,
        requests=requests,
        coverage=coverage,
        budget=Budget(trials, parse_duration_s(budget, what="--budget") if budget else None),
        seed=seed,
        vllm_version=vllm_version,
    )
    job, runner = make_job(
        spec,
        vllm_python,
        launcher,
        allow_quality_flags=allow_quality_flags,
        parallel=parse_parallel(parallel),
        where=Where(executor, ray_address, shared=StudyPlace("", studies, storage).shared),
    )
    job = replace(job, cost=price)
    place = place_of(job, study, studies, storage, new)
    out = console(to_stderr=json)
    if dry_run:
        plan = make_plan(job, place)
        if json:
            print_json(plan_object(plan))
        else:
            for line in plan_lines(plan):
                out.print(line, soft_wrap=True)
        return Exit.OK
    with interruptible():
        try:
            with watching(out, verbose=verbose, quiet=quiet) as observer:
                result = run_study(job, place, observer)
        except KeyboardInterrupt:
            write_at_end(place, interrupted=True)
            raise
        finally:
            runner.close()
    result = priced(result, place, price)
    profile = result.profile
    reported = write_at_end(place)
    if json:
        cost = cost_object(profile) if profile else None
        print_json({**result_object(result), "quality_flags": quality_of(result), "cost": cost})
    else:
        print_result(result, out, place.root)
        for line in cost_lines(profile) if profile else ():
            out.print(line, soft_wrap=True, markup=False, highlight=False)
        if reported is not None:
            out.print(f"Read it: {reported}", soft_wrap=True, markup=False)
    for note in remarks(result, runner):
        out.print(f"note: {note}", soft_wrap=True, markup=False)
    return Exit.NOTHING_MEETS_SLO if result.recommendation == "none" else Exit.OK


def priced(result: TuneResult, place: StudyPlace, price: GpuCost | None) -> TuneResult:
    """The result at this price, the profile on disk too: a study that had ended may be asked again."""
    if price is None or result.profile is None or result.profile.cost == price:
        return result
    profile = replace(result.profile, cost=price)
    save_profile(profile, place.folder / "profile.yaml")
    return replace(result, profile=profile)


def write_at_end(place: StudyPlace, *, interrupted: bool = False) -> Path | None:
    """The report of a study that has ended or was interrupted; None where it cannot be written.

    A report that fails must not take the result with it.
    """
    try:
        return write_report(read_study(place), ("html", "md"))[0]
    except Exception as error:  # what was measured in hours is shown whatever becomes of the report
        if interrupted and isinstance(error, BadRequest):  # before there was a study: nothing to report
            return None
        print(f"kimi-tune: the report was not written ({type(error).__name__}: {error})", file=sys.stderr)
        return None


def quality_of(result: TuneResult) -> list[str]:
    """Flags of the winner that can change the answers."""
    return list(quality_flags(result.winner.flags)) if result.winner else []


def remarks(result: TuneResult, engine: Engine) -> Iterator[str]:
    """What to know beside the figures: answers that may change, left-overs cleared, a launcher given up."""
    if named := quality_of(result):
        yield f"{', '.join(named)} can change the answers' quality: check them before you deploy"
    profile = result.profile
    if profile is not None and profile.drift is not None and profile.drift.excessive:
        apart = f"{profile.drift.relative:.0%} against {profile.drift.limit:.0%}"
        yield f"the machine drifted: two launches of the defaults lie {apart} apart; run the finals again"
    if profile is not None and profile.brittle:
        yield f"the winner is brittle: {profile.brittle}"
    yield from getattr(engine, "notes", ())


def _given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def make_job(
    spec: TuneSpec,
    vllm_python: str | None = None,
    launcher: str = AUTO,
    *,
    allow_quality_flags: bool = False,
    parallel: int | None = 1,
    where: Where | None = None,
) -> tuple[Job, Engine]:
    """The job and its engine; nothing is launched. `parallel` None is as many trials as the GPUs hold."""
    made = prepare(
        spec,
        vllm_python,
        launcher,
        allow_quality_flags=allow_quality_flags,
        gpus_a_trial=functools.partial(space_gpu, parallel=parallel),
    )
    engine = engine_at(made.place, made.shape, spec.model, spec.seed)
    baseline = made.space.baseline()
    driver = driver_version() if made.place.launcher else None
    slots, size = make_slots(
        made.place,
        made.shape,
        spec.model,
        engine,
        baseline,
        parallel,
        spec.seed,
        where=where or Where(),
    )
    job = Job(
        spec=spec,
        engine=engine,
        gpu=made.place.gpu,
        shape=made.shape,
        trace=made.trace,
        space=made.space,
        rules=made.rules,
        defaults=effective_defaults(made.place.gpu, made.shape, made.place.vllm_version),
        predictor=predictor_of(made.place, made.shape, spec, made.trace),
        driver=driver,
        machine=machine_of(made.place, driver),
        slots=slots,
        parallel=size,
    )
    return job, engine


def machine_of(place: Place, driver: str | None) -> dict[str, Any]:
    """Where the figures come from; of a simulation the GPU and the version that were simulated."""
    if place.launcher is None:
        return {"gpu": place.gpu.name, "gpu_count": place.gpu.count, "vllm": place.vllm_version}
    packages = place.installed.package_dir.parent if place.installed else None
    return describe_machine(place.gpu, driver=driver, vllm_version=place.vllm_version, packages=packages)


def place_of(job: Job, study: str | None, studies: Path, storage: str | None, new: bool) -> StudyPlace:
    """Where the study lives: under its own name, or the one that its job gives it."""
    name = study or study_name(job)
    return StudyPlace(fresh_name(studies, name) if new else name, studies, storage)
