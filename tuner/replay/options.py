"""How the client behaves, apart from what it sends and when."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

KEY_VARIABLES = ("KIMI_TUNE_API_KEY", "OPENAI_API_KEY")


class Endpoint(StrEnum):
    """Where prompts go. AUTO asks the server whether it takes token ids and falls back to chat."""

    AUTO = "auto"
    COMPLETIONS = "completions"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of a replay.

    `token_low` and `token_high` bound the drawn token ids [low, high), a range that every vocabulary has.
    `min_tokens` asks for it beside `ignore_eos`, where a server still stops early. `exact_length` classes an
    answer of another length than the trace's as WRONG_LENGTH. `slo_smallest_s` decides how much lag makes a
    replay invalid (None: taken from the curtailment, else the cap). `stall_s` without a byte ends a request.
    `processes` send the load together (None: as many as the plan says it needs), whole sessions each.
    `body_memory_mib` is how much the bodies may take before they are built just ahead of their time instead.
    """

    endpoint: Endpoint = Endpoint.AUTO
    token_low: int = 10
    token_high: int = 4000
    min_tokens: bool = False
    ignore_eos: bool = True
    exact_length: bool = True
    slo_smallest_s: float | None = None
    stall_s: float = 300.0
    connect_s: float = 30.0
    warm_connections: int | None = None
    body_memory_mib: float = 256.0
    counters: bool = True
    processes: int | None = None


def api_key() -> str | None:
    """The key for the server from the environment; it is sent, and never printed or stored."""
    for name in KEY_VARIABLES:
        key = os.environ.get(name, "").strip()
        if key:
            return key
    return None
