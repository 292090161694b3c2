"""The problems to develop on."""

from __future__ import annotations

from search_parts.effects import (
    Backend,
    Bookkeeping,
    Cliff,
    Fragments,
    Overlap,
    Stall,
    Streams,
    Tables,
)
from search_parts.hide import hide
from search_parts.problem import Problem
from tuner.spec import Slo

DEVELOPING = (
    Problem(
        1,
        "A100-80G",
        "kimi-k2.6-awq",
        "shipped",
        Slo(e2e_p99_s=30.0),
        hide(11, Fragments(0.88, 0.2), Backend(64, 0.2), Tables(0.25)),
    ),
    Problem(
        2,
        "H200-141G",
        "meta-llama/Llama-3.1-8B-Instruct",
        "conversation",
        Slo(e2e_p99_s=20.0, ttft_p99_s=3.0),
        hide(12, Streams(280e-6), Overlap(0.18), Stall(2500, 0.5)),
    ),
    Problem(
        3,
        "RTX4090-24G",
        "Qwen/Qwen3-8B",
        "short chat",
        Slo(e2e_p99_s=25.0),
        hide(13, Overlap(0.2), Backend(32, 0.2), Fragments(0.9, 0.25)),
    ),
    Problem(
        4,
        "H100-80G",
        "Qwen/Qwen3-14B",
        "documents",
        Slo(e2e_p99_s=15.0),
        hide(14, Overlap(0.12), Tables(0.15), Fragments(0.89, 0.12)),
    ),
    Problem(
        5,
        "2xA100-80G",
        "Qwen/Qwen3-32B",
        "code",
        Slo(ttft_p99_s=5.0, e2e_p99_s=15.0),
        hide(15, Tables(0.18), Overlap(0.1), Bookkeeping(0.1)),
    ),
    Problem(
        6,
        "H200-141G",
        "moonshotai/Moonlight-16B-A3B-Instruct",
        "reasoning",
        Slo(e2e_p99_s=60.0),
        hide(16, Cliff(150, 1.2), Streams(90e-6), Bookkeeping(0.16)),
    ),
)
