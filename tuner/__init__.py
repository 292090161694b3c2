"""kimi-tune: vLLM launch flags that carry the most of your traffic within a P99 SLO."""

__version__ = "0.1.0"
