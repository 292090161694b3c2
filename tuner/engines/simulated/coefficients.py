"""How far real kernels and real hosts stay behind the data sheet: the few numbers that calibration fits."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.hardware import Gpu, Platform


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Efficiencies are shares of the data sheet, times are seconds.

    The defaults reproduce an H200 that serves an 8B model under vLLM 0.21; other cards start from the same
    shares, since these are properties of the kernels and of Python more than of the card.
    """

    bandwidth: float = 0.82
    """Of the memory bandwidth, when weights stream through a matrix product."""
    kv_bandwidth: float = 0.85
    """Of the memory bandwidth, when decode attention reads the KV cache."""
    mla_bandwidth: float = 0.45
    """The same for latent attention, whose decode kernels have few heads' worth of work to overlap."""
    matmul: float = 0.59
    """Of the tensor-core peak, for the linear layers of a prompt chunk and the small kernels between."""
    attention: float = 0.5
    """Of the tensor-core peak, for attention over prompt chunks; kernels alone reach 0.5 to 0.75 on long
    prompts (FlashAttention-2 and -3, the papers' forward figures)."""
    expert_matmul: float = 0.4
    """Of the tensor-core peak, for grouped expert products."""
    quantized_matmul: float = 0.8
    """Of the 16-bit rate, where 4-bit weights are unpacked on the way (Marlin)."""
    expert_tile: float = 16.0
    """Rows that a touched expert's product is padded by, on average: it works in tiles."""
    step_s: float = 0.6e-3
    """On the device, every step: sampling, copies, what no graph covers."""
    layer_s: float = 12e-6
    """On the device, every layer: kernels too small to fill it, and their gaps."""
    mla_layer_s: float = 15e-6
    """The same more for latent attention: down, up and absorbed projections, rotary parts, merges."""
    expert_layer_s: float = 25e-6
    """The same more for experts: routing, sorting by expert, gathering."""
    host_s: float = 1.4e-3
    """On the host, every step: scheduling, input preparation, output handling."""
    host_seq_s: float = 11e-6
    """On the host, every sequence in a step."""
    launch_s: float = 55e-6
    """On the host, every layer of a batch that no full graph covers (compiled pieces and attention)."""
    eager_s: float = 170e-6
    """On the host, every layer under --enforce-eager."""
    frontend_token_s: float = 20e-6
    """In the API server, every token: detokenising and bookkeeping."""
    frontend_chunk_s: float = 30e-6
    """In the API server and the client, every streamed chunk: serialising and sending it."""
    frontend_crowd_s: float = 0.2e-6
    """The same once more for every other stream of the step: about 90 us a token were seen with 256
    streams, 160 with 600."""
    all_reduce_s: float = 9e-6
    """Latency of an all-reduce between cards, two of them a layer."""
    link: float = 0.7
    """Of the link bandwidth between cards."""
    host_link: float = 0.5
    """Of the link bandwidth to the host, when KV blocks come back from there."""


def default_coefficients(gpu: Gpu) -> Coefficients:
    """What to expect of a device before anything was measured on it."""
    if gpu.platform is Platform.CPU:
        return Coefficients(
            bandwidth=0.6,
            kv_bandwidth=0.4,
            mla_bandwidth=0.3,
            matmul=0.4,
            attention=0.2,
            expert_matmul=0.25,
            step_s=2e-3,
            layer_s=60e-6,
            host_s=2.5e-3,
            host_seq_s=25e-6,
            launch_s=150e-6,
            eager_s=250e-6,
        )
    return Coefficients()
