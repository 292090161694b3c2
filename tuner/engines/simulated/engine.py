"""The simulated engine: launches that cost nothing but arithmetic, and replays in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from tuner.engines.base import Phase, ServerFacts
from tuner.engines.simulated.coefficients import Coefficients, default_coefficients
from tuner.engines.simulated.refusals import refuse
from tuner.engines.simulated.server import SimulatedServer
from tuner.engines.simulated.setup import Setup, SetupMaker
from tuner.hardware import Gpu
from tuner.models import ModelShape
from tuner.space import LaunchConfig, Rules, flag_table, to_argv
from tuner.spec import FlagValue

# Real launches of an 8B model on an H200: with nothing cached, with packages read before but another graph to
# compile, with the same graph compiled before; and what each further GiB of weights adds.
_COLD_S, _COMPILE_S, _WARM_S = 85.0, 76.0, 50.0
_MEASURED_GIB, _GIB_S = 15.0, 0.5

SIMULATED_FLAGS = frozenset(
    {
        "async-scheduling",
        "block-size",
        "cudagraph-capture-sizes",
        "enable-chunked-prefill",
        "enable-prefix-caching",
        "enforce-eager",
        "gpu-memory-utilization",
        "kv-cache-dtype",
        "kv-cache-memory-bytes",
        "kv-offloading-size",
        "load-format",
        "max-cudagraph-capture-size",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "performance-mode",
        "stream-interval",
        "swap-space",
        "tensor-parallel-size",
    }
)
"""Flags whose effect on scheduling, memory or step time is simulated; others only reach the command line."""


class SimulatedEngine:
    """vLLM of one version with one model on one kind of GPU, simulated.

    `facts.notes` of a server names the flags of its configuration that the simulation knows nothing of.

    With `noise` > 0 every step time is multiplied by a lognormal factor of that standard deviation; each
    replay draws its own, reproducibly from `seed`.
    """

    name = "sim"

    def __init__(
        self,
        gpu: Gpu,
        shape: ModelShape,
        version: str,
        *,
        seed: int = 0,
        noise: float = 0.0,
        coefficients: Coefficients | None = None,
    ) -> None:
        self._version, self._seed, self._noise = version, seed, noise
        self._rules = Rules(gpu, shape, version)
        self._maker = SetupMaker(self._rules.memory, coefficients or default_coefficients(gpu))
        self._table = flag_table(version)
        self._compiled: set[tuple[object, ...]] = set()
        self._replays = 0

    @property
    def vllm_version(self) -> str:
        """The version that is simulated."""
        return self._version

    @property
    def deterministic(self) -> bool:
        """True without noise."""
        return self._noise <= 0.0

    def launch(self, config: LaunchConfig, folder: Path, phase: Phase | None = None) -> SimulatedServer:
        """Start a configuration; nothing is written to `folder`.

        Raises:
            LaunchFailure: it could not start on a real machine either, by arithmetic; `seconds` is what such
                a launch costs there.
        """
        self._refuse(config)
        for name in ("loading", "compiling", "capturing graphs") if phase is not None else ():
            assert phase is not None
            phase(name)
        setup = self._maker.make(config)
        model = self._maker.shape.path or self._maker.shape.name
        facts = ServerFacts(
            startup_s=self._startup_s(setup),
            kv_tokens=setup.plan.kv_tokens,
            command=("vllm", "serve", model, *to_argv(config, self._version)),
            weights_gib=setup.plan.weights_gib,
            effective=setup.effective,
            notes=_notes(config),
        )
        return SimulatedServer(setup, facts, self._noise_of_replay)

    @property
    def coefficients(self) -> Coefficients:
        """Those of its step times."""
        return self._maker.coefficients

    def server(
        self, config: LaunchConfig, coefficients: Coefficients, *, checked: bool = True
    ) -> SimulatedServer:
        """A server without a launch's account, its step times by other coefficients.

        Raises:
            LaunchFailure: it could not start, where that is checked.
        """
        if checked:
            self._refuse(config)
        setup = SetupMaker(self._maker.memory, coefficients).make(config)
        facts = ServerFacts(startup_s=0.0, kv_tokens=setup.plan.kv_tokens, command=())
        return SimulatedServer(setup, facts, lambda: None)

    def effective(self, config: LaunchConfig) -> Mapping[str, FlagValue]:
        """The values in force of a configuration, and its `kv-tokens`."""
        setup = self._maker.make(config)
        return {**setup.effective, "kv-tokens": setup.plan.kv_tokens}

    def observe(self, config: LaunchConfig, kv_tokens: int, weights_gib: float) -> None:
        """Correct the memory arithmetic by what a launch of `config` logged (0: nothing)."""
        self._rules.observe(config, kv_tokens=kv_tokens or None, weights_gib=weights_gib or None)
        self._maker = SetupMaker(self._rules.memory, self._maker.coefficients)

    def _refuse(self, config: LaunchConfig) -> None:
        failure = refuse(self._rules, self._table, config)
        if failure is not None:
            raise failure

    def _startup_s(self, setup: Setup) -> float:
        seconds = _WARM_S if setup.compile_key in self._compiled else _COMPILE_S
        if not self._compiled:
            seconds = _COLD_S
        self._compiled.add(setup.compile_key)
        return seconds + _GIB_S * max(setup.plan.weights_gib - _MEASURED_GIB, 0.0)

    def startup_estimate_s(self) -> float:
        """Seconds of a launch whose graph has to be compiled."""
        weights = self._maker.memory.plan({}).weights_gib
        return _COMPILE_S + _GIB_S * max(weights - _MEASURED_GIB, 0.0)

    def _noise_of_replay(self) -> Callable[[], float] | None:
        """Factors of mean 1 for the steps of the next replay."""
        if self._noise <= 0.0:
            return None
        rng = np.random.default_rng([self._seed, self._replays])
        self._replays += 1
        spread = self._noise
        pool: Iterator[float] = iter(())

        def draw() -> float:
            nonlocal pool
            for factor in pool:
                return factor
            pool = iter(rng.lognormal(-spread * spread / 2.0, spread, 4096).tolist())
            return draw()

        return draw

    def close(self) -> None:
        """Nothing is held."""


def _notes(config: LaunchConfig) -> tuple[str, ...]:
    ignored = sorted(name for name in config if name not in SIMULATED_FLAGS)
    return ("simulated", *((f"without effect in the simulation: {', '.join(ignored)}",) if ignored else ()))
