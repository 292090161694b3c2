"""Small examples of every trace format, and traces for property tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tuner.traces import Trace, TraceSource

SHARED = Path(__file__).parents[2] / ".." / "shared" / "traces"


@dataclass(frozen=True)
class Example:
    """A file of one format: a first line (or none), rows, and what they say. `fields` are those that every
    row needs, `filler` a row that comes later than all others.
    """

    header: str | None
    rows: tuple[str, ...]
    arrival_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    session: tuple[int, ...]
    fields: tuple[str, ...]
    block_tokens: int = 0

    def text(self, rows: tuple[str, ...] | None = None, newline: str = "\n", end: str = "\n") -> bytes:
        lines = ([self.header] if self.header is not None else []) + list(rows or self.rows)
        return (newline.join(lines) + end).encode()

    @property
    def is_csv(self) -> bool:
        return not self.rows[0].startswith("{")

    def first_row_line(self) -> int:
        return 1 if self.header is None else 2

    def with_field(self, row: int, field: str, value: Any, *, drop: bool = False) -> bytes:
        """The file with one field of one row changed, or taken out."""
        rows = list(self.rows)
        if self.is_csv:
            assert self.header is not None
            cells = rows[row].split(",")
            cells[self.header.split(",").index(field)] = "" if drop else str(value)
            rows[row] = ",".join(cells)
        else:
            record = json.loads(rows[row])
            holder = record["body"] if "body" in record and field in record["body"] else record
            if drop:
                del holder[field]
            else:
                holder[field] = value
            rows[row] = json.dumps(record)
        return self.text(tuple(rows))


def _json(*records: dict[str, Any]) -> tuple[str, ...]:
    return tuple(json.dumps(record) for record in records)


EXAMPLES: dict[str, Example] = {
    "kimi-tune": Example(
        header='{"kimi-tune-trace": 1, "block_size": 64, "prefix_reuse": "recorded"}',
        rows=_json(
            {"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [0, 1], "session_id": "a"},
            {"timestamp": 10.5, "input_length": 64, "output_length": 6, "hash_ids": [0], "session_id": "b"},
            {
                "timestamp": 999,
                "input_length": 129,
                "output_length": 7,
                "hash_ids": [0, 2, 3],
                "session_id": "a",
            },
        ),
        arrival_s=(0.0, 0.0105, 0.999),
        input_tokens=(100, 64, 129),
        output_tokens=(5, 6, 7),
        session=(0, 1, 0),
        fields=("timestamp", "input_length", "output_length", "hash_ids"),
        block_tokens=64,
    ),
    "mooncake": Example(
        header=None,
        rows=_json(
            {"timestamp": 3000, "input_length": 1200, "output_length": 52, "hash_ids": [0, 1, 2]},
            {"timestamp": 3001, "input_length": 513, "output_length": 26, "hash_ids": [7, 8]},
            {"timestamp": 9500, "input_length": 1600, "output_length": 5, "hash_ids": [0, 1, 5, 6]},
        ),
        arrival_s=(0.0, 0.001, 6.5),
        input_tokens=(1200, 513, 1600),
        output_tokens=(52, 26, 5),
        session=(0, 1, 0),
        fields=("timestamp", "input_length", "output_length", "hash_ids"),
        block_tokens=512,
    ),
    "bailian": Example(
        header=None,
        rows=_json(
            {
                "chat_id": 159,
                "parent_chat_id": -1,
                "timestamp": 61.114,
                "input_length": 20,
                "output_length": 9,
            }
            | {"type": "text", "turn": 1, "hash_ids": [1089, 1090]},
            {"chat_id": 160, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 16, "output_length": 4}
            | {"type": "text", "turn": 1, "hash_ids": [1091]},
            {
                "chat_id": 161,
                "parent_chat_id": 159,
                "timestamp": 63.114,
                "input_length": 40,
                "output_length": 2,
            }
            | {"type": "text", "turn": 2, "hash_ids": [1089, 1092, 1093]},
        ),
        arrival_s=(0.0, 0.386, 2.0),
        input_tokens=(20, 16, 40),
        output_tokens=(9, 4, 2),
        session=(0, 1, 0),
        fields=("timestamp", "input_length", "output_length", "hash_ids", "chat_id"),
        block_tokens=16,
    ),
    "ragpulse": Example(
        header=None,
        rows=_json(
            {"timestamp": "82", "input_length": 3112, "output_length": 192, "session_id": "x-1"}
            | {"hash_ids": {"sys_prompt": [1, 2], "user_input": [3]}},
            {"timestamp": "93", "input_length": 3167, "output_length": 86, "session_id": "x-2"}
            | {"hash_ids": {"sys_prompt": [1, 2], "user_input": [4]}},
            {"timestamp": "125", "input_length": 2890, "output_length": 11, "session_id": "x-1"}
            | {"hash_ids": {"sys_prompt": [1, 2], "user_input": [5]}},
        ),
        arrival_s=(0.0, 11.0, 43.0),
        input_tokens=(3112, 3167, 2890),
        output_tokens=(192, 86, 11),
        session=(0, 1, 0),
        fields=("timestamp", "input_length", "output_length"),
    ),
    "openai-log": Example(
        header=None,
        rows=_json(
            {"timestamp": 1700000000.25, "body": {"prompt": "x" * 41, "max_tokens": 30}},
            {"timestamp": 1700000001.25, "body": {"prompt": "hello", "max_tokens": 4}},
            {"timestamp": 1700000003.0, "body": {"prompt": "y" * 400, "max_tokens": 12}},
        ),
        arrival_s=(0.0, 1.0, 2.75),
        input_tokens=(11, 2, 100),
        output_tokens=(30, 4, 12),
        session=(0, 1, 2),
        fields=("timestamp", "max_tokens"),
        block_tokens=16,
    ),
    "azure": Example(
        header="TIMESTAMP,ContextTokens,GeneratedTokens",
        rows=(
            "2023-11-16 18:15:46.6805900,374,44",
            "2023-11-16 18:15:50.9951690,396,109",
            "2023-11-16 18:16:00,879,55",
        ),
        arrival_s=(0.0, 4.314579, 13.31941),
        input_tokens=(374, 396, 879),
        output_tokens=(44, 109, 55),
        session=(0, 1, 2),
        fields=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ),
    "burstgpt": Example(
        header="Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        rows=(
            "5,s1,1.5,ChatGPT,472,18,490,Conversation log",
            "45,,0.2,ChatGPT,1087,230,1317,API log",
            "118.5,s1,2,GPT-4,417,276,693,Conversation log",
        ),
        arrival_s=(0.0, 40.0, 113.5),
        input_tokens=(472, 1087, 417),
        output_tokens=(18, 230, 276),
        session=(0, 1, 0),
        fields=("Timestamp", "Request tokens", "Response tokens"),
    ),
    "vidur": Example(
        header="arrived_at,num_prefill_tokens,num_decode_tokens",
        rows=("0.0,374,44", "4.314579,396,109", "5.8926549999999995,91,16"),
        arrival_s=(0.0, 4.314579, 5.892655),
        input_tokens=(374, 396, 91),
        output_tokens=(44, 109, 16),
        session=(0, 1, 2),
        fields=("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    ),
    "splitwise-sim": Example(
        header="request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
        rows=("0,2,0,0.012,1,1155,69", "1,2,0,0.13,1,1155,11", "2,2,0,7,1,20,9"),
        arrival_s=(0.0, 0.118, 6.988),
        input_tokens=(1155, 1155, 20),
        output_tokens=(69, 11, 9),
        session=(0, 1, 2),
        fields=("arrival_timestamp", "prompt_size", "token_size"),
    ),
}


def make_trace(
    arrival_s: Any,
    session: Any = None,
    blocks: Any = None,
    block_tokens: int = 64,
    output_tokens: Any = None,
) -> Trace:
    """A trace of these arrivals; prompts as long as their whole blocks (10 tokens where there are none)."""
    arrival = np.asarray(arrival_s, np.float64)
    n = len(arrival)
    lists = blocks if blocks is not None else [[] for _ in range(n)]
    counts = np.array([len(ids) for ids in lists], np.int64)
    return Trace(
        arrival_s=arrival,
        input_tokens=(counts * block_tokens if blocks is not None else np.full(n, 10)).astype(np.int32),
        output_tokens=np.asarray(output_tokens if output_tokens is not None else np.full(n, 5), np.int32),
        session=np.asarray(session if session is not None else np.arange(n), np.int64),
        block_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        block_ids=np.array([block for ids in lists for block in ids], np.int64),
        block_tokens=block_tokens if blocks is not None else 0,
        source=TraceSource("made for a test", prefix_reuse=blocks is not None),
    )


@st.composite
def traces(draw: st.DrawFn, max_requests: int = 40) -> Trace:
    """Traces with sessions that grow behind a shared block, arrivals of every kind."""
    gaps = draw(
        st.lists(
            st.floats(0, 1e4, allow_nan=False) | st.integers(0, 5).map(float),
            min_size=0,
            max_size=max_requests,
        )
    )
    arrival = np.concatenate([[0.0], np.cumsum(gaps)])
    n = len(arrival)
    labels = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    order: dict[int, int] = {}
    session = [order.setdefault(label, len(order)) for label in labels]
    if not draw(st.booleans()):
        return make_trace(arrival, session)
    length: dict[int, int] = {}
    blocks = []
    for own in session:
        length[own] = length.get(own, 0) + 1
        blocks.append([0, *(1000 * (own + 1) + k for k in range(length[own]))])
    return make_trace(arrival, session, blocks)
