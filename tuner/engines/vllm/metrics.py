"""The server's own figures, from the text of its /metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_COUNTERS = {
    "preemptions": "vllm:num_preemptions_total",
    "prefix_query_tokens": "vllm:prefix_cache_queries_total",
    "prefix_hit_tokens": "vllm:prefix_cache_hits_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "step_tokens": "vllm:iteration_tokens_total_sum",
    "steps": "vllm:iteration_tokens_total_count",
    "queue_time_s": "vllm:request_queue_time_seconds_sum",
}
_COMPUTED = ("step_tokens", "prompt_tokens", "generation_tokens")
_FINISHED = "vllm:request_success_total"
_CACHE = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class Metrics:
    """One reading: running totals by their short names, and the labels of the cache configuration."""

    totals: Mapping[str, float] = field(default_factory=dict)
    cache: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokens(self) -> float:
        """Tokens computed so far, of prompts and answers; it moves with every step that does anything."""
        return sum(self.totals.get(name, 0.0) for name in _COMPUTED)

    def since(self, before: Metrics) -> dict[str, float]:
        """What was added since an earlier reading."""
        return {name: value - before.totals.get(name, 0.0) for name, value in self.totals.items()}


def parse(text: str) -> Metrics:
    """Read a /metrics page; engines of a data-parallel server are summed, `_created` times left out."""
    totals: dict[str, float] = {}
    cache: dict[str, str] = {}
    short = {series: name for name, series in _COUNTERS.items()}
    for line in text.splitlines():
        if not line.startswith("vllm:") or not (match := _SAMPLE.match(line)):
            continue
        series, labels = match[1], match[2] or ""
        if series == _CACHE:
            cache = dict(_LABEL.findall(labels))
            continue
        if series == _FINISHED:
            name = "finished_" + dict(_LABEL.findall(labels)).get("finished_reason", "unknown")
        elif series in short:
            name = short[series]
        else:
            continue
        try:
            totals[name] = totals.get(name, 0.0) + float(match[3])
        except ValueError:
            continue
    return Metrics(totals, cache)
