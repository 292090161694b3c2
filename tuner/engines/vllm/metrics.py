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
_GAUGES = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting"}
_COMPUTED = ("step_tokens", "prompt_tokens", "generation_tokens")
_FINISHED = "vllm:request_success_total"
_CACHE = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class Metrics:
    """One reading: running totals and gauges by their short names, and the cache configuration's labels."""

    totals: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    cache: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokens(self) -> float:
        """Tokens computed so far, of prompts and answers; it moves with every step that does anything."""
        return sum(self.totals.get(name, 0.0) for name in _COMPUTED)

    @property
    def only_waiting(self) -> bool:
        """Requests wait and none runs: none of them fits, and there is nothing whose end would make room."""
        return self.gauges.get("waiting", 0.0) > 0 and self.gauges.get("running", 1.0) == 0

    def since(self, before: Metrics) -> dict[str, float]:
        """What was added since an earlier reading."""
        return {name: value - before.totals.get(name, 0.0) for name, value in self.totals.items()}


def parse(text: str) -> Metrics:
    """Read a /metrics page; engines of a data-parallel server are summed, `_created` times left out."""
    totals: dict[str, float] = {}
    gauges: dict[str, float] = {}
    cache: dict[str, str] = {}
    short = {series: name for name, series in (_COUNTERS | _GAUGES).items()}
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
            into = gauges if name in _GAUGES else totals
            into[name] = into.get(name, 0.0) + float(match[3])
        except ValueError:
            continue
    return Metrics(totals, gauges, cache)
