"""From flags to numbers: what a configuration makes of scheduler, step time and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.engines.simulated.coefficients import Coefficients
from tuner.engines.simulated.limits import Limits
from tuner.engines.simulated.steptime import StepTime
from tuner.hardware import Gpu
from tuner.models import ModelShape, kv_bytes_per_token_per_card
from tuner.space import MemoryModel, MemoryPlan, rendered
from tuner.space.argv import offloading_flag
from tuner.space.effective import AUTO, truth, whole
from tuner.space.graphs import effective_capture_sizes
from tuner.space.versions import at_least
from tuner.spec import FlagValue


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration ready to simulate; `effective` are the values in force by flag."""

    limits: Limits
    cost: StepTime
    plan: MemoryPlan
    effective: Mapping[str, FlagValue]
    compile_key: tuple[object, ...]


class SetupMaker:
    """Makes setups for one GPU, model and version; their step times share `coefficients`."""

    def __init__(self, memory: MemoryModel, coefficients: Coefficients) -> None:
        self.memory = memory
        self.coefficients = coefficients

    @property
    def gpu(self) -> Gpu:
        return self.memory.gpu

    @property
    def shape(self) -> ModelShape:
        return self.memory.shape

    def make(self, config: Mapping[str, FlagValue]) -> Setup:
        """The setup of a configuration that starts."""
        version, shape = self.memory.version, self.shape
        flags: dict[str, FlagValue] = dict(getattr(config, "items_", config))
        values, plan = self.memory.resolve(flags), self.memory.plan(flags)
        kv_bytes = 1.0 if values.kv_fp8 else None
        length = values.max_model_len
        if length == AUTO:
            length = min(shape.max_model_len, plan.kv_tokens)
        effective: dict[str, FlagValue] = {**self.memory.resolve.defaults, **flags}
        effective |= {
            "max-num-seqs": values.max_num_seqs,
            "max-num-batched-tokens": values.max_num_batched_tokens,
            "max-model-len": length,
            "block-size": values.block_size,
            "gpu-memory-utilization": values.utilization,
        }
        asynchronous = truth(effective.get("async-scheduling"), True)
        graphs = effective_capture_sizes(values, version)
        limits = Limits(
            max_num_seqs=values.max_num_seqs,
            max_num_batched_tokens=values.max_num_batched_tokens,
            block_size=values.block_size,
            kv_blocks=plan.kv_blocks,
            max_model_len=length,
            prefix_caching=truth(effective.get("enable-prefix-caching"), True),
            chunked_prefill=values.chunked_prefill,
            async_scheduling=asynchronous,
            reserve_full_sequence=at_least(version, "0.19"),
            host_blocks=self._host_blocks(flags, values.tensor_parallel, kv_bytes, values.block_size),
        )
        cost = StepTime(
            self.gpu,
            shape,
            self.coefficients,
            graph_sizes=graphs,
            tensor_parallel=values.tensor_parallel,
            kv_dtype_bytes=kv_bytes,
            asynchronous=asynchronous,
            stream_interval=whole(effective.get("stream-interval")) or 1,
        )
        key = (
            values.max_num_batched_tokens,
            values.block_size,
            str(effective.get("kv-cache-dtype")),
            length,
            values.tensor_parallel,
            graphs,
        )
        return Setup(limits, cost, plan, effective, key)

    def _host_blocks(
        self, flags: Mapping[str, FlagValue], tp: int, kv_bytes: float | None, block_size: int
    ) -> int:
        """Blocks of the host's KV cache: kv-offloading-size is in GiB, over all ranks."""
        version = self.memory.version
        size = rendered(flags, version).get(offloading_flag(version))
        # before 0.18 the V1 engine never moved a block to its swap space
        if not at_least(version, "0.18") or isinstance(size, bool) or not isinstance(size, int | float):
            return 0
        a_block = kv_bytes_per_token_per_card(self.shape, tp, kv_bytes) * tp * block_size
        return int(size * 2**30 / a_block)
