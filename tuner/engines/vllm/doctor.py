"""Checks whether the real engine can run on this machine, each with how to mend what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tuner.engines.vllm.machine import Card, Machine, extra_of, look

OLDEST, FIRST_UNKNOWN = Version("0.18"), Version("0.34")
"""The vLLM versions that are known to work: from the one, below the other."""


class Status(StrEnum):
    """FAIL: the real engine cannot run. WARN: it can, and may not do well."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What one look found, and how to mend it."""

    name: str
    status: Status
    detail: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All checks."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether the real engine can run here."""
        return all(check.status is not Status.FAIL for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """`{"ok": …, "checks": [{"name", "status", "detail", "mend"}]}`."""
        return {
            "ok": self.ok,
            "checks": [
                {"name": c.name, "status": c.status.value, "detail": c.detail, "mend": c.mend}
                for c in self.checks
            ],
        }


def examine(
    *,
    model: str | None = None,
    folder: Path = Path("studies"),
    python: str | None = None,
    machine: Machine | None = None,
) -> DoctorReport:
    """Examine this machine, or the facts in `machine`. `folder` is where studies land, `python` the
    interpreter that has vLLM (default: where it is found), `model` one that has to be there.
    """
    facts = machine or look(model=model, folder=folder, python=python)
    return DoctorReport(tuple(check for examination in EXAMINATIONS for check in examination(facts)))


def _on_cpu(machine: Machine) -> bool:
    """Whether the vLLM here is a build for the CPU."""
    if machine.vllm is None:
        return False
    return "cpu" in machine.vllm.version or (machine.torch is not None and machine.torch.cuda is None)


def _vllm(machine: Machine) -> Iterator[Check]:
    if machine.vllm is None:
        yield Check(
            "vLLM",
            Status.FAIL,
            "not found",
            "pip install 'kimi-tune[vllm]', or name its interpreter: --vllm-python",
        )
        return
    said = f"{machine.vllm.version} in {machine.vllm.python}"
    try:
        known = OLDEST <= Version(machine.vllm.version) < FIRST_UNKNOWN
    except InvalidVersion:
        known = False
    mend = "" if known else f"versions {OLDEST} to below {FIRST_UNKNOWN} are known to work"
    yield Check("vLLM", Status.OK if known else Status.WARN, said, mend)


def _torch(machine: Machine) -> Iterator[Check]:
    if machine.vllm is None:
        return
    if machine.torch is None:
        yield Check("torch", Status.FAIL, "not found beside vLLM", "install vLLM again: it brings its torch")
        return
    cuda = machine.torch.cuda
    yield Check(
        "torch", Status.OK, f"{machine.torch.version}, {f'CUDA {_dotted(cuda)}' if cuda else 'for the CPU'}"
    )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _gpu(machine: Machine) -> Iterator[Check]:
    if not machine.cards:
        if _on_cpu(machine):
            yield Check("GPU", Status.OK, "none, and this vLLM runs on the CPU")
        else:
            yield Check("GPU", Status.FAIL, "none is seen", "check nvidia-smi; in a container: --gpus all")
        return
    names = sorted({card.name for card in machine.cards})
    counted = ", ".join(f"{sum(card.name == name for card in machine.cards)} x {name}" for name in names)
    yield Check("GPU", Status.OK, counted)


def _driver(machine: Machine) -> Iterator[Check]:
    if not machine.cards or machine.driver is None:
        return
    runs = machine.driver_cuda
    said = f"{machine.driver}, runs CUDA {_dotted(runs)}" if runs else machine.driver
    built = machine.torch.cuda if machine.torch else None
    if built and runs and built[0] > runs[0]:
        mend = "update the driver, or install a vLLM built for this CUDA"
        yield Check("driver", Status.FAIL, f"{said}, and torch was built for CUDA {_dotted(built)}", mend)
    elif built and runs and built > runs:
        mend = "kernels that are compiled on first use may fail: update the driver if they do"
        yield Check("driver", Status.WARN, f"{said}, and torch was built for CUDA {_dotted(built)}", mend)
    else:
        yield Check("driver", Status.OK, said)


def _gpu_memory(machine: Machine) -> Iterator[Check]:
    for index, card in enumerate(machine.cards):
        name, share = f"GPU {index} memory", card.free_gib / card.total_gib if card.total_gib else 0.0
        said = f"{card.free_gib:.1f} of {card.total_gib:.1f} GiB free"
        if share >= 0.92:  # vLLM's default gpu-memory-utilization asks for that much
            yield Check(name, Status.OK, said)
            continue
        status = Status.FAIL if share < 0.2 else Status.WARN
        yield Check(
            name, status, f"{said}, held by {_holders(card)}", "stop what holds it, or take another GPU"
        )


def _holders(card: Card) -> str:
    if not card.holders:
        return "processes that are not seen from here"
    return "; ".join(
        f"{holder.pid} ({holder.name}" + (f", {holder.gib:.1f} GiB)" if holder.gib is not None else ")")
        for holder in card.holders
    )


def _disks(machine: Machine) -> Iterator[Check]:
    for name, path, free in machine.disks:
        status = Status.FAIL if free < 0.1 else Status.WARN if free < 2.0 else Status.OK
        yield Check(
            f"disk of {name}",
            status,
            f"{free:.1f} GiB free at {path}",
            "" if status is Status.OK else "free space there, or name another place",
        )


def _shared_memory(machine: Machine) -> Iterator[Check]:
    if machine.shm_gib is None:
        return
    # 64 MiB is what docker gives: enough for one GPU, too little for workers that talk through NCCL.
    small = machine.shm_gib < 1.0 and len(machine.cards) > 1
    mend = "tensor parallelism needs more: docker run --ipc=host or --shm-size 16g" if small else ""
    yield Check(
        "shared memory", Status.WARN if small else Status.OK, f"{machine.shm_gib:.2f} GiB of /dev/shm", mend
    )


def _open_files(machine: Machine) -> Iterator[Check]:
    if machine.open_files is None:
        return
    soft, hard = machine.open_files
    reach = max(soft, hard) if hard >= 0 else 1 << 30
    low = 0 <= reach < 4096
    yield Check(
        "open files",
        Status.WARN if low else Status.OK,
        f"limit {soft}" + (f", up to {hard}" if hard != soft and hard >= 0 else ""),
        "a replay opens one connection a request in flight: ulimit -n 65536" if low else "",
    )


def _host_memory(machine: Machine) -> Iterator[Check]:
    if machine.host_free_gib is None:
        return
    low = machine.host_free_gib < 8.0
    mend = "loading a model may be killed by the kernel" if low else ""
    yield Check(
        "host memory", Status.WARN if low else Status.OK, f"{machine.host_free_gib:.1f} GiB available", mend
    )


def _compilers(machine: Machine) -> Iterator[Check]:
    if machine.vllm is None:
        return
    c = [name for name in machine.compilers if name in ("gcc", "cc", "clang")]
    if not c:
        yield Check(
            "compiler",
            Status.WARN,
            "no C compiler is found",
            "torch.compile and Triton need one: install gcc",
        )
    elif machine.cards and "nvcc" not in machine.compilers:
        mend = "FlashInfer compiles kernels on first use: where it fails, set VLLM_USE_FLASHINFER_SAMPLER=0"
        yield Check("compiler", Status.OK, f"{c[0]}, no nvcc", mend)
    else:
        yield Check("compiler", Status.OK, ", ".join(machine.compilers))


def _model(machine: Machine) -> Iterator[Check]:
    model = machine.model
    if model is None:
        return
    if model.problem is not None:
        yield Check("model", Status.FAIL, model.problem.what, model.problem.mend)
    elif model.path is None:
        mend = "its figures are known; to serve it give its folder or hub id"
        yield Check("model", Status.WARN, f"{model.name} is not on this machine", mend)
    elif not model.weights:
        mend = "fetch them, or serve random ones: --set load-format=dummy"
        yield Check("model", Status.WARN, f"{model.path} holds no whole set of weights", mend)
    else:
        yield Check("model", Status.OK, f"{model.name} in {model.path}")


def _leftovers(machine: Machine) -> Iterator[Check]:
    if not machine.leftovers:
        yield Check("left servers", Status.OK, "none")
        return
    mend = "the next run of kimi-tune ends them"
    yield Check("left servers", Status.WARN, ", ".join(machine.leftovers), mend)


def _optional(machine: Machine) -> Iterator[Check]:
    for name, there in sorted(machine.optional.items()):
        mend = "" if there else f"optional: pip install 'kimi-tune[{extra_of(name)}]'"
        yield Check(name.replace("_", "-"), Status.OK, "installed" if there else "not installed", mend)


EXAMINATIONS: tuple[Callable[[Machine], Iterator[Check]], ...] = (
    _vllm,
    _torch,
    _gpu,
    _driver,
    _gpu_memory,
    _host_memory,
    _disks,
    _shared_memory,
    _open_files,
    _compilers,
    _model,
    _leftovers,
    _optional,
)
"""Every examination, in the order in which they are shown."""
