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
        "H100-80G",
        "Qwen/Qwen3-30B-A3B",
        "shipped",
        Slo(e2e_p99_s=15.0),
        hide(323706, Streams(chunk_s=0.000919), Overlap(slower=0.212), Tables(slower=0.248)),
    ),
    Problem(
        8,
        "L40S-48G",
        "Qwen/Qwen3-14B",
        "conversation",
        Slo(e2e_p99_s=120.0),
        hide(440732, Cliff(most=41, slower=0.687), Overlap(slower=0.208), Bookkeeping(slower=0.159)),
    ),
    Problem(
        9,
        "A100-80G",
        "Qwen/Qwen3-14B",
        "code",
        Slo(e2e_p99_s=10.0),
        hide(127488, Fragments(most=0.885, slower=0.171), Bookkeeping(slower=0.203), Tables(slower=0.252)),
    ),
    Problem(
        10,
        "H100-80G",
        "meta-llama/Llama-3.1-8B-Instruct",
        "reasoning",
        Slo(e2e_p99_s=45.0),
        hide(45495, Streams(chunk_s=0.000165), Bookkeeping(slower=0.179), Tables(slower=0.188)),
    ),
    Problem(
        11,
        "H200-141G",
        "Qwen/Qwen3-32B",
        "documents",
        Slo(e2e_p99_s=45.0, ttft_p99_s=5.0),
        hide(14761, Streams(chunk_s=0.00211), Backend(least=32, slower=0.156), Overlap(slower=0.152)),
    ),
    Problem(
        12,
        "A100-80G",
        "kimi-k2.6-awq",
        "short chat",
        Slo(e2e_p99_s=15.0, ttft_p99_s=5.0),
        hide(294688, Streams(chunk_s=0.000909), Tables(slower=0.287), Overlap(slower=0.216)),
    ),
    Problem(
        13,
        "H20-96G",
        "Qwen/Qwen3-32B",
        "agents",
        Slo(e2e_p99_s=45.0),
        hide(989904, Streams(chunk_s=0.0243), Overlap(slower=0.21), Backend(least=32, slower=0.186)),
    ),
    Problem(
        14,
        "L4-24G",
        "Qwen/Qwen3-1.7B",
        "shipped",
        Slo(e2e_p99_s=45.0, ttft_p99_s=3.0),
        hide(372520, Streams(chunk_s=0.0046), Tables(slower=0.288), Overlap(slower=0.206)),
    ),
    Problem(
        15,
        "2xH200-141G",
        "meta-llama/Llama-3.1-70B-Instruct",
        "conversation",
        Slo(e2e_p99_s=45.0),
        hide(
            833149,
            Fragments(most=0.888, slower=0.226),
            Overlap(slower=0.168),
            Backend(least=64, slower=0.186),
        ),
    ),
    Problem(
        16,
        "H200-141G",
        "moonshotai/Moonlight-16B-A3B-Instruct",
        "code",
        Slo(e2e_p99_s=10.0),
        hide(
            461428,
            Fragments(most=0.879, slower=0.213),
            Backend(least=64, slower=0.178),
            Bookkeeping(slower=0.203),
        ),
    ),
    Problem(
        17,
        "A6000-48G",
        "Qwen/Qwen3-8B",
        "reasoning",
        Slo(e2e_p99_s=180.0),
        hide(300936, Fragments(most=0.874, slower=0.221), Tables(slower=0.216), Overlap(slower=0.201)),
    ),
    Problem(
        18,
        "RTX4090-24G",
        "Qwen/Qwen3-4B",
        "documents",
        Slo(e2e_p99_s=30.0, ttft_p99_s=5.0),
        hide(858467, Cliff(most=11, slower=1.187), Fragments(most=0.886, slower=0.244), Overlap(slower=0.2)),
    ),
)
