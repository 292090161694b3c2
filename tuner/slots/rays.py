"""Slots on a Ray cluster: an actor with so many GPUs for each trial, on whichever node has them."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tuner.engines.base import Engine, FailureKind, LaunchFailure
from tuner.errors import BadRequest, EngineUnavailable
from tuner.hardware import Gpu, detect
from tuner.slots import wire
from tuner.slots.hosted import Say
from tuner.slots.pool import Pool, Share, shares_of_count

CPUS_A_SLOT = 1
CLOSE_LIMIT_S = 30.0


def ray_pool(
    address: str | None, factory: Callable[[], Engine], like: Engine, gpu: Gpu | None, parallel: int | None
) -> Pool:
    """Slots on the cluster at `address` (None: the one of this machine, or of RAY_ADDRESS).

    `gpu` is the kind that every trial needs; without one (a simulation) a slot takes a CPU core.

    Raises:
        EngineUnavailable: Ray is not installed, or the cluster cannot be reached.
        BadRequest: the cluster has no GPUs.
    """
    ray = _ray()
    if not ray.is_initialized():
        try:
            ray.init(address=address or os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
        except ConnectionError as error:
            raise EngineUnavailable(
                f"no Ray cluster at {address or 'this machine'}",
                "start one: ray start --head, or --ray-address",
            ) from error
    resources = ray.cluster_resources()
    count = int(resources.get("GPU" if gpu is not None else "CPU", 0))
    if gpu is not None and not count:
        raise BadRequest("the Ray cluster has no GPUs", "start its nodes with --num-gpus")
    if gpu is None and parallel is not None:
        count = parallel
    return Pool(shares_of_count(count), like, lambda group: RayLink(ray, factory, group, gpu), keep=False)


class RayHost:
    """What an actor holds: the engine is made with the first order, so that its errors come as answers."""

    def __init__(self, path: Sequence[str], factory: bytes, gpu: Gpu | None) -> None:
        sys.path.extend(entry for entry in path if entry not in sys.path)
        self._factory, self._gpu = factory, gpu
        self._host: Any = None

    def obey(self, *order: Any) -> tuple[Any, ...]:
        """Carry out one order."""
        from tuner.slots.host import Host, pickled

        if self._host is None:
            try:
                self._check()
                self._host = Host(pickled(self._factory), lambda *said: None)
            except Exception as error:
                return "error", wire.error_to_json(error)
        answer: tuple[Any, ...] = self._host.obey(*order)
        return answer

    def close(self) -> None:
        """Stop the server."""
        if self._host is not None:
            self._host.close()

    def _check(self) -> None:
        here = [found.name for found in detect()] if self._gpu is not None else []
        if self._gpu is not None and self._gpu.name not in here:
            raise BadRequest(
                f"a Ray node has {', '.join(here) or 'no GPU'}, the study is of {self._gpu.name}",
                "use nodes of one kind of GPU",
            )


class RayLink:
    """A host in an actor. A node that goes takes it along: its trial is then asked again."""

    def __init__(
        self, ray: Any, factory: Callable[[], Engine], group: Sequence[Share], gpu: Gpu | None
    ) -> None:
        ports = f"{group[0].ports[0]}-{group[-1].ports[1]}"
        options = {
            "num_cpus": CPUS_A_SLOT,
            "num_gpus": len(group) if gpu is not None else 0,
            "max_restarts": 0,
            "runtime_env": {"env_vars": {"KIMI_TUNE_PORTS": ports}},
        }
        self._ray = ray
        self._actor = (
            ray.remote(RayHost).options(**options).remote(list(sys.path), pickle.dumps(factory), gpu)
        )
        self._lost = self._busy = False

    @property
    def lives(self) -> bool:
        """Whether it has not been lost or closed."""
        return not self._lost

    def ask(self, say: Say, *order: Any) -> tuple[Any, ...]:
        """Send an order and wait for its answer.

        Raises:
            LaunchFailure: the actor or its node is gone.
        """
        self._busy = True
        try:
            answer: tuple[Any, ...] = self._ray.get(self._actor.obey.remote(*order))
        except self._ray.exceptions.RayError as error:
            self._lost = True
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise LaunchFailure(FailureKind.SLOT_LOST, f"its Ray node or actor has gone ({first})") from error
        self._busy = False
        return answer

    def close(self) -> None:
        """Stop its server and give its GPUs back to the cluster."""
        if self._lost:
            return
        lost, self._lost = self._busy, True
        with contextlib.suppress(Exception):  # it is killed all the same
            if not lost:
                self._ray.get(self._actor.close.remote(), timeout=CLOSE_LIMIT_S)
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise EngineUnavailable(
            "--executor ray: Ray is not installed", "pip install 'kimi-tune[ray]'"
        ) from error
    return ray
