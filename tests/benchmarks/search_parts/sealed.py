"""The sealed problems: nobody looks at what a search makes of them while it is developed.

`python -m search_parts.choose` drew them from a seed of their own, by their truth alone.
"""

from __future__ import annotations

from search_parts.effects import Backend, Bookkeeping, Cliff, Fragments, Overlap, Streams, Tables
from search_parts.hide import hide
from search_parts.problem import Problem
from tuner.spec import Slo

SEALED = (
    Problem(
        7,
        "H200-141G",
        "Qwen/Qwen3-32B",
        "shipped",
        Slo(e2e_p99_s=30.0),
        hide(499168, Streams(chunk_s=0.00211), Tables(slower=0.194), Backend(least=64, slower=0.165)),
    ),
    Problem(
        8,
        "RTX4090-24G",
        "Qwen/Qwen3-4B",
        "conversation",
        Slo(e2e_p99_s=30.0),
        hide(
            386618, Cliff(most=23, slower=1.001), Bookkeeping(slower=0.157), Backend(least=64, slower=0.218)
        ),
    ),
    Problem(
        9,
        "H20-96G",
        "Qwen/Qwen3-32B",
        "code",
        Slo(e2e_p99_s=30.0),
        hide(715972, Streams(chunk_s=0.1), Overlap(slower=0.217), Bookkeeping(slower=0.191)),
    ),
    Problem(
        10,
        "A6000-48G",
        "Qwen/Qwen3-8B",
        "reasoning",
        Slo(e2e_p99_s=180.0, ttft_p99_s=5.0),
        hide(973791, Fragments(most=0.876, slower=0.217), Tables(slower=0.188), Overlap(slower=0.198)),
    ),
    Problem(
        11,
        "H100-80G",
        "meta-llama/Llama-3.1-8B-Instruct",
        "documents",
        Slo(e2e_p99_s=15.0),
        hide(454926, Fragments(most=0.873, slower=0.194), Streams(chunk_s=0.000639), Tables(slower=0.24)),
    ),
    Problem(
        12,
        "H200-141G",
        "moonshotai/Moonlight-16B-A3B-Instruct",
        "short chat",
        Slo(e2e_p99_s=20.0),
        hide(836698, Cliff(most=211, slower=0.973), Overlap(slower=0.172), Tables(slower=0.29)),
    ),
    Problem(
        13,
        "A100-80G",
        "kimi-k2.6-awq",
        "agents",
        Slo(e2e_p99_s=10.0),
        hide(212027, Streams(chunk_s=0.00237), Fragments(most=0.879, slower=0.168), Tables(slower=0.265)),
    ),
    Problem(
        14,
        "A100-80G",
        "Qwen/Qwen3-14B",
        "shipped",
        Slo(e2e_p99_s=30.0),
        hide(
            724260,
            Fragments(most=0.884, slower=0.161),
            Backend(least=32, slower=0.163),
            Overlap(slower=0.175),
        ),
    ),
    Problem(
        15,
        "2xH200-141G",
        "meta-llama/Llama-3.1-70B-Instruct",
        "conversation",
        Slo(e2e_p99_s=90.0),
        hide(
            550727,
            Fragments(most=0.872, slower=0.206),
            Bookkeeping(slower=0.18),
            Backend(least=64, slower=0.201),
        ),
    ),
    Problem(
        16,
        "H100-80G",
        "Qwen/Qwen3-30B-A3B",
        "code",
        Slo(e2e_p99_s=10.0),
        hide(
            354263, Fragments(most=0.887, slower=0.208), Backend(least=64, slower=0.221), Tables(slower=0.189)
        ),
    ),
    Problem(
        17,
        "L40S-48G",
        "Qwen/Qwen3-14B",
        "reasoning",
        Slo(e2e_p99_s=180.0, ttft_p99_s=3.0),
        hide(593902, Fragments(most=0.877, slower=0.167), Streams(chunk_s=0.00208), Overlap(slower=0.154)),
    ),
    Problem(
        18,
        "L4-24G",
        "Qwen/Qwen3-1.7B",
        "documents",
        Slo(e2e_p99_s=45.0),
        hide(947535, Streams(chunk_s=0.00689), Overlap(slower=0.189), Tables(slower=0.237)),
    ),
)
