"""The server's own counters over a replay, from vLLM's /metrics (Prometheus text)."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = {
    "vllm:num_preemptions": "preemptions",
    "vllm:prefix_cache_queries": "prefix_query_tokens",
    "vllm:prefix_cache_hits": "prefix_hit_tokens",
    "vllm:prompt_tokens": "server_prompt_tokens",
    "vllm:generation_tokens": "server_generation_tokens",
    "vllm:request_success": "server_requests",
}


def parse_counters(text: str) -> dict[str, float]:
    """The known counters in a scrape, summed over their labels; lines that are none are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        name = _NAMES.get(line.partition("{")[0].partition(" ")[0].removesuffix("_total"))
        if name is None:
            continue
        try:
            value = float(line.rpartition("}")[2].split()[0] if "}" in line else line.split()[1])
        except (ValueError, IndexError):
            continue
        found[name] = found.get(name, 0.0) + value
    return found


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was counted between two scrapes; nothing where the server restarted in between."""
    grown = {name: after[name] - before[name] for name in after if name in before}
    return {name: value for name, value in grown.items() if value >= 0.0}
