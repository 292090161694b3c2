"""The truth's step time: smooth where the guide's roofline has corners, with coefficients of its own.

Memory traffic and arithmetic of the linear layers add up in a power mean, since neither ever hides the other
entirely; their rates rise with the batch and the length of a chunk; every sequence costs something on its
own; and the host's share shows partly even where it runs beside the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from search_parts.effects import Effect
from search_parts.setting import Setting
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

OFF = 1.4
"""Coefficients are off by up to this factor, either way."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the data sheet, and seconds."""

    weights: float = 0.78
    cache: float = 0.74
    latent_cache: float = 0.42
    products: float = 0.66
    experts: float = 0.42
    attention: float = 0.46
    half_batch: float = 48.0
    """Tokens that bring the linear layers' arithmetic to half its rate."""
    half_decodes: float = 5.0
    """Sequences that bring the reading of the cache to half its rate."""
    half_chunk: float = 160.0
    """Chunk length that brings prompt attention to half its rate."""
    mean: float = 2.6
    """Exponent of the power mean."""
    layer_s: float = 21e-6
    latent_layer_s: float = 14e-6
    expert_layer_s: float = 22e-6
    sequence_s: float = 7e-6
    """On the device, each: sampling and the tail of its attention."""
    host_s: float = 1.5e-3
    host_sequence_s: float = 10e-6
    hidden: float = 0.86
    """Share of the host's time that asynchronous scheduling hides."""
    ungraphed_s: float = 48e-6
    """Each layer of a batch without a graph."""
    chunk_s: float = 0.25e-3
    """Each prompt chunk in a step."""
    token_s: float = 16e-6
    stream_s: float = 24e-6
    crowd_s: float = 0.12e-6
    link_s: float = 10e-6
    link: float = 0.62
    host_link: float = 0.45

    @classmethod
    def drawn(cls, seed: int) -> Rates:
        """Every coefficient off by up to 40%; shares stay below one."""
        rng = np.random.default_rng(seed)
        off = np.exp(rng.uniform(-np.log(OFF), np.log(OFF), len(fields(cls))))
        values = {f.name: float(f.default) * float(x) for f, x in zip(fields(cls), off, strict=True)}  # type: ignore[arg-type]
        for share in ("weights", "cache", "latent_cache", "products", "experts", "attention", "hidden"):
            values[share] = min(values[share], 0.95)
        values["mean"] = max(values["mean"], 1.8)
        return cls(**values)


class TrueSteps:
    """Seconds of a step of one launch, in the form that the event scheduler asks for."""

    def __init__(
        self, gpu: Gpu, shape: ModelShape, rates: Rates, setting: Setting, effects: Sequence[Effect]
    ) -> None:
        r, tp, layers = rates, setting.tensor_parallel, shape.layers
        self._r, self._setting, self._effects, self._layers = r, setting, tuple(effects), layers
        stream_s = r.stream_s + sum(effect.frontend_chunk_s(setting) for effect in effects)
        self.frontend_token_s = r.token_s + stream_s / setting.interval
        self.frontend_crowd_s = r.crowd_s / setting.interval
        bandwidth = gpu.bandwidth_gb_s * 1e9
        wide = gpu.tflops.get("bf16", gpu.tflops.get("fp16", 1.0)) * 1e12
        eight = shape.quantization is not None and "fp8" in shape.quantization
        peak = gpu.tflops.get("fp8", wide / 1e12) * 1e12 if eight else wide
        self._read_s = dense_weight_bytes(shape) / tp / (bandwidth * r.weights)
        experts = shape.experts
        self._routed, self._active = (experts.routed, experts.active) if experts else (0, 0)
        moe_layers = layers - experts.dense_layers if experts else 0
        row = 6.0 * shape.hidden * experts.intermediate * moe_layers if experts else 0.0
        self._expert_read_s = expert_weight_bytes(shape) / tp / (bandwidth * r.weights)
        self._expert_row_s = row / tp / (peak * r.experts)
        self._token_s = (flops_per_token(shape) - self._active * row) / tp / (peak * r.products)
        self._head_s = head_flops(shape) / tp / (wide * r.products)
        kv = kv_bytes_per_token_per_card(shape, tp)
        self._context_s = kv / (bandwidth * (r.latent_cache if shape.mla else r.cache))
        flops = attention_flops_per_token_of_context(shape)
        if shape.mla is not None:
            flops = 2.0 * shape.heads * (shape.mla.nope_dim + shape.mla.rope_dim + shape.mla.v_dim) * layers
        self._pair_s = flops / tp / (wide * r.attention)
        self.load_token_s = kv / (gpu.host_link_gb_s * 1e9 * r.host_link)
        small = r.layer_s + (r.latent_layer_s if shape.mla else 0.0) + (r.expert_layer_s if experts else 0.0)
        self._fixed_s = layers * (small + (2.0 * r.link_s if tp > 1 else 0.0))
        link = max(gpu.link_gb_s or gpu.host_link_gb_s, 1e-3) * 1e9 * r.link
        exchanged = 2.0 * (tp - 1) / tp * shape.hidden * shape.dtype_bytes
        self._exchange_s = 2.0 * layers * exchanged / link
        self._shown = 1.0 - r.hidden if setting.overlapped else 1.0
        self._decodes: dict[int, tuple[float, float, float, float]] = {}
        self._linear: dict[int, float] = {}

    def _linear_s(self, tokens: int) -> float:
        known = self._linear.get(tokens)
        if known is None:
            known = self._linear[tokens] = self._linear_of(tokens)
        return known

    def _linear_of(self, tokens: int) -> float:
        r = self._r
        graphed = tokens <= self._setting.graphs
        batch = -(-tokens // 8) * 8 if graphed else tokens
        seconds = self._mean(self._read_s, (batch + r.half_batch) * self._token_s)
        if self._routed:
            touched = self._routed * (1.0 - math.exp(-batch * self._active / self._routed))
            rows = batch * self._active + 12.0 * touched
            seconds += self._mean(touched * self._expert_read_s, rows * self._expert_row_s)
        seconds += self._fixed_s + batch * self._exchange_s
        return seconds + (0.0 if graphed else self._layers * self._r.ungraphed_s)

    def _mean(self, one: float, other: float) -> float:
        p: float = self._r.mean
        return (one**p + other**p) ** (1.0 / p)

    def _host_s(self, batch: int) -> float:
        return self._shown * (self._r.host_s + batch * self._r.host_sequence_s)

    def _step(self, batch: int) -> float:
        factor = 1.0
        for effect in self._effects:
            factor *= effect.step(self._setting, batch)
        return factor

    def _slope_s(self, decodes: int) -> float:
        return self._context_s * (1.0 + self._r.half_decodes / max(decodes, 1))

    def decode(self, decodes: int) -> tuple[float, float, float, float]:
        """(base, floor, fixed, slope): base + max(floor, fixed + slope x sum of contexts) seconds."""
        known = self._decodes.get(decodes)
        if known is None:
            factor = self._step(decodes)
            fixed = self._linear_s(decodes) + decodes * (self._r.sequence_s + self._head_s)
            fixed += self._host_s(decodes)
            known = (0.0, 0.0, factor * fixed, factor * self._slope_s(decodes))
            self._decodes[decodes] = known
        return known

    def mixed(
        self, decodes: int, context: int, tokens: int, pairs: int, reads: int, chunks: int, sampled: int
    ) -> float:
        """A step with `chunks` prompt chunks of `tokens` tokens in all beside the decodes."""
        r, batch = self._r, decodes + chunks
        seconds = self._linear_s(decodes + tokens) + self._host_s(batch) + chunks * r.chunk_s
        seconds += sampled * self._head_s + batch * r.sequence_s
        if decodes:
            seconds += self._slope_s(decodes) * context
        seconds += self._mean(
            pairs * self._pair_s * (1.0 + r.half_chunk * chunks / tokens), reads * self._context_s
        )
        factor = self._step(batch)
        for effect in self._effects:
            factor *= effect.chunks(self._setting, decodes, tokens)
        return factor * seconds
