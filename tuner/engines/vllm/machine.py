"""Facts of this machine that decide whether vLLM can run here; reading them starts and changes nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.engines.vllm import owner, sessions
from tuner.errors import BadRequest
from tuner.hardware.nvml import text_of
from tuner.models import find_model, has_weights
from tuner.space.installed import Installed, find_vllm

GIB = 2**30
_OPTIONAL = {"uvloop": "speed", "optuna_dashboard": "dashboard"}


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a GPU; `gib` None where the driver does not say."""

    pid: int
    name: str
    gib: float | None


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as the driver shows it now."""

    name: str
    total_gib: float
    free_gib: float
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch beside vLLM: its version, and the CUDA it was built for ((13, 0); None for a CPU build)."""

    version: str
    cuda: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was asked for: what was found, or why not."""

    name: str
    path: Path | None = None
    weights: bool = False
    problem: BadRequest | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found. Sizes in GiB by folder; `driver_cuda` is the newest CUDA that the driver runs."""

    cards: tuple[Card, ...] = ()
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    vllm: Installed | None = None
    torch: Torch | None = None
    disks: tuple[tuple[str, Path, float], ...] = ()
    shm_gib: float | None = None
    open_files: tuple[int, int] | None = None
    host_free_gib: float | None = None
    compilers: tuple[str, ...] = ()
    model: Model | None = None
    leftovers: tuple[str, ...] = ()
    optional: dict[str, bool] = field(default_factory=dict)


def look(*, model: str | None, folder: Path, python: str | None) -> Machine:
    """Look at this machine, at vLLM in `python` (default: where it is found), and at the model if named."""
    vllm = find_vllm(python)
    cards, driver, driver_cuda = _gpus()
    return Machine(
        cards=cards,
        driver=driver,
        driver_cuda=driver_cuda,
        vllm=vllm,
        torch=torch_of(vllm) if vllm else None,
        disks=tuple(_disks(folder)),
        shm_gib=_free_gib(Path("/dev/shm"), total=True),  # noqa: S108 - looked at, not written
        open_files=_open_files(),
        host_free_gib=_host_free_gib(),
        compilers=tuple(name for name in ("gcc", "cc", "clang", "nvcc", "ninja") if shutil.which(name)),
        model=_model(model) if model else None,
        leftovers=left_servers(),
        optional={name: importlib.util.find_spec(name) is not None for name in _OPTIONAL},
    )


def extra_of(package: str) -> str:
    """The extra of this project that brings an optional package."""
    return _OPTIONAL[package]


def torch_of(vllm: Installed) -> Torch | None:
    """The torch that this vLLM imports: beside it, or wherever else its interpreter finds one."""
    if (beside := torch_beside(vllm.package_dir)) is not None:
        return beside
    ask = "import importlib.util; print((importlib.util.find_spec('torch') or exit(1)).origin)"
    try:
        said = subprocess.run(
            [str(vllm.python), "-c", ask], capture_output=True, text=True, timeout=60, check=True, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return torch_beside(Path(said.stdout.strip()).parent)


def torch_beside(package_dir: Path) -> Torch | None:
    """The torch in the same site-packages folder, read from its version.py; None where there is none."""
    try:
        text = (package_dir.parent / "torch" / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.M)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+)\.(\d+)", text, re.M)
    return Torch(version[1], (int(cuda[1]), int(cuda[2])) if cuda else None) if version else None


def left_servers(folder: Path | None = None) -> tuple[str, ...]:
    """Servers of earlier runs that still live though the run that started them does not."""
    found = []
    for file in sorted((folder or owner.state_folder()).glob("*.json")):
        try:
            record = json.loads(file.read_text())
            if not sessions.alive(*record["owner"]):
                living = [
                    pid for known in record["sessions"] for pid, start in known if sessions.alive(pid, start)
                ]
                found += [f"process {pid}" for pid in living]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(found)


def _gpus() -> tuple[tuple[Card, ...], str | None, tuple[int, int] | None]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver, no device: there is no GPU to speak of
        return (), None, None
    try:
        nvml: Any = pynvml
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion())
        cards = tuple(_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        return cards, text_of(nvml.nvmlSystemGetDriverVersion()), (cuda // 1000, cuda % 1000 // 10)
    except pynvml.NVMLError:
        return (), None, None
    finally:
        pynvml.nvmlShutdown()


def _card(nvml: Any, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        running = []
    holders = tuple(
        Holder(int(p.pid), _process_name(int(p.pid)), p.usedGpuMemory / GIB if p.usedGpuMemory else None)
        for p in running
    )
    return Card(text_of(nvml.nvmlDeviceGetName(handle)), memory.total / GIB, memory.free / GIB, holders)


def _process_name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "a process that is not seen from here"
    return b" ".join(words).decode("utf-8", "replace").strip()[:60] or "?"


def _disks(folder: Path) -> Iterator[tuple[str, Path, float]]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    places = {
        "studies": folder,
        "model cache": Path(os.environ.get("HF_HOME") or home / "huggingface"),
        "compile cache": Path(os.environ.get("VLLM_CACHE_ROOT") or home / "vllm"),
        "temporary files": Path(tempfile.gettempdir()),
    }
    for name, path in places.items():
        free = _free_gib(path)
        if free is not None:
            yield name, path, free


def _free_gib(path: Path, *, total: bool = False) -> float | None:
    """Free (or all) space of the disk that holds the path, or would hold it."""
    place = path.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return None
    return (usage.total if total else usage.free) / GIB


def _open_files() -> tuple[int, int] | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _host_free_gib() -> float | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        return None
    return int(found[1]) / 2**20 if found else None


def _model(text: str) -> Model:
    try:
        shape = find_model(text)
    except BadRequest as error:
        return Model(text, problem=error)
    path = Path(shape.path) if shape.path else None
    return Model(shape.name, path, path is not None and has_weights(path))
