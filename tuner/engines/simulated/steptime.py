"""How long one engine step takes: a roofline over the GPU and the model, plus what host and frontend cost.

A step runs its linear layers, its attention and its sampling one after the other; each takes the longer of
its memory traffic and its arithmetic (Williams et al., "Roofline", CACM 2009). With asynchronous scheduling
the host works beside the device and only the slower of the two shows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tuner.engines.simulated.coefficients import Coefficients
from tuner.hardware import Gpu
from tuner.models import ModelShape
from tuner.models.figures import (
    attention_flops_per_token_of_context,
    dense_weight_bytes,
    expert_weight_bytes,
    flops_per_token,
    head_flops,
    kv_bytes_per_token_per_card,
)

_FEW_BITS = 8.0


class StepTime:
    """Seconds of a step of one launch; implements `StepCost`.

    Args:
        gpu, shape: the card and the model.
        graph_sizes: batch sizes with a CUDA graph, ascending; () in eager mode.
        tensor_parallel: cards that share every layer.
        kv_dtype_bytes: bytes of one KV value where it is not the model's own.
        asynchronous: whether the host's work hides behind the device's.
        stream_interval: tokens a streamed chunk.
    """

    def __init__(
        self,
        gpu: Gpu,
        shape: ModelShape,
        coefficients: Coefficients,
        *,
        graph_sizes: Sequence[int],
        tensor_parallel: int = 1,
        kv_dtype_bytes: float | None = None,
        asynchronous: bool = True,
        stream_interval: int = 1,
    ) -> None:
        k, tp = coefficients, tensor_parallel
        self._k, self._shape, self._tp = k, shape, tp
        self._graphs = tuple(graph_sizes)
        self._async = asynchronous
        self._host_s, self._host_seq_s = k.host_s, k.host_seq_s
        self.frontend_token_s = k.frontend_token_s + k.frontend_chunk_s / max(stream_interval, 1)
        self.frontend_crowd_s = k.frontend_crowd_s / max(stream_interval, 1)
        bandwidth = gpu.bandwidth_gb_s * 1e9
        peak = _peak_flops(gpu.tflops, shape)
        wide_peak = gpu.tflops.get("bf16", peak / 1e12) * 1e12
        unpack = k.quantized_matmul if shape.weight_bits < _FEW_BITS else 1.0

        # linear layers
        self._dense_s = dense_weight_bytes(shape) / tp / (bandwidth * k.bandwidth)
        experts = shape.experts
        self._expert_s = expert_weight_bytes(shape) / tp / (bandwidth * k.bandwidth)
        self._routed, self._active = (experts.routed, experts.active) if experts else (0, 0)
        expert_layers = shape.layers - experts.dense_layers if experts else 0
        one_expert = 6.0 * shape.hidden * experts.intermediate * expert_layers if experts else 0.0
        dense_flops = flops_per_token(shape) - self._active * one_expert
        self._dense_token_s = dense_flops / tp / (peak * k.matmul * unpack)
        self._expert_row_s = one_expert / tp / (peak * k.expert_matmul * unpack)
        self._head_token_s = head_flops(shape) / tp / (wide_peak * k.matmul)

        # attention: reading the cache in decode, arithmetic over the pairs in prefill
        kv = kv_bytes_per_token_per_card(shape, tp, kv_dtype_bytes)
        share = k.mla_bandwidth if shape.mla else k.kv_bandwidth
        decode_flops = attention_flops_per_token_of_context(shape) / tp
        self._context_s = max(kv / (bandwidth * share), decode_flops / (wide_peak * k.attention))
        self._read_s = kv / (bandwidth * k.kv_bandwidth)
        self._pair_s = _prefill_pair_flops(shape) / tp / (wide_peak * k.attention)

        self.load_token_s = kv / (gpu.host_link_gb_s * 1e9 * k.host_link)

        # between the cards
        hidden_bytes = shape.hidden * shape.dtype_bytes
        exchanged = 2.0 * (tp - 1) / tp * hidden_bytes
        link = max(gpu.link_gb_s or gpu.host_link_gb_s, 1e-3) * 1e9 * k.link
        self._reduce_s = 2.0 * shape.layers * k.all_reduce_s if tp > 1 else 0.0
        self._reduce_token_s = 2.0 * shape.layers * exchanged / link if tp > 1 else 0.0

        small_s = k.layer_s + (k.mla_layer_s if shape.mla else 0.0) + (k.expert_layer_s if experts else 0.0)
        self._device_s = k.step_s + shape.layers * small_s
        self._piece_s = shape.layers * (k.launch_s if graph_sizes else k.eager_s)
        self._linear_of: dict[int, float] = {}
        self._decode_of: dict[int, tuple[float, float, float, float]] = {}

    def padded(self, tokens: int) -> int | None:
        """The graph size that a batch of so many tokens runs at, None where it is beyond the largest."""
        place = bisect_left(self._graphs, tokens)
        return self._graphs[place] if place < len(self._graphs) else None

    def linear_s(self, batch: int) -> float:
        """Linear layers, collectives and the device's fixed share of a batch, padded to its graph."""
        tokens = self.padded(batch) or batch
        seconds = max(self._dense_s, tokens * self._dense_token_s)
        if self._routed:
            rows = tokens * self._active
            touched = self._routed * (1.0 - (1.0 - self._active / self._routed) ** tokens)
            padded = rows + touched * self._k.expert_tile
            seconds += max(touched * self._expert_s, padded * self._expert_row_s)
        seconds += self._device_s + self._reduce_s + tokens * self._reduce_token_s
        self._linear_of[batch] = seconds
        return seconds

    def decode(self, decodes: int) -> tuple[float, float, float, float]:
        """(base, floor, fixed, slope): base + max(floor, fixed + slope x sum of contexts) seconds."""
        known = self._decode_of.get(decodes)
        if known is not None:
            return known
        size = self.padded(decodes)
        host = self._host_s + decodes * self._host_seq_s
        launch = self._piece_s if size is None else 0.0
        fixed = self.linear_s(decodes) + decodes * self._head_token_s
        known = (0.0, host + launch, fixed, self._context_s)
        if not self._async:
            known = (host, launch, fixed, self._context_s)
        self._decode_of[decodes] = known
        return known

    def mixed(
        self, decodes: int, context: int, tokens: int, pairs: int, reads: int, chunks: int, sampled: int
    ) -> float:
        """A step with prompt chunks; see `StepCost.mixed`."""
        batch = decodes + tokens
        linear = self._linear_of.get(batch) or self.linear_s(batch)
        host = self._host_s + (decodes + chunks) * self._host_seq_s
        attention, reading = pairs * self._pair_s, reads * self._read_s
        device = (
            linear
            + sampled * self._head_token_s
            + context * self._context_s
            + (attention if attention > reading else reading)
        )
        least = self._piece_s
        if self._async:
            least += host
            return least if least > device else device
        return host + (least if least > device else device)


def _peak_flops(tflops: Mapping[str, float], shape: ModelShape) -> float:
    """Tensor-core rate of the linear layers: fp8 where both sides have it, else 16 bits."""
    wide = tflops.get("bf16", tflops.get("fp16", 1.0))
    eight = shape.quantization is not None and "fp8" in shape.quantization
    return (tflops.get("fp8", wide) if eight else wide) * 1e12


def _prefill_pair_flops(shape: ModelShape) -> float:
    """FLOPs for one (query, key) pair over all layers; latent attention prefills in its full form."""
    if shape.mla is not None:
        mla = shape.mla
        return 2.0 * shape.heads * (mla.nope_dim + mla.rope_dim + mla.v_dim) * shape.layers
    return attention_flops_per_token_of_context(shape)
