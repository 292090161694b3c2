"""The server's own account of a replay beside the client's: requests and tokens, from its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.replay.records import Replay, Status

_ROOM = 0.01


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What the server counted over a replay (None: it has no such counter), and how that differs."""

    requests: int | None
    generation_tokens: int | None
    prompt_tokens: int | None
    mismatch: str | None

    def to_json(self) -> dict[str, Any]:
        """The object under `server` in a replay's figures."""
        return {
            "requests": self.requests,
            "generation_tokens": self.generation_tokens,
            "prompt_tokens": self.prompt_tokens,
            "mismatch": self.mismatch,
        }


def server_side(replay: Replay) -> ServerSide | None:
    """The server's counters and what does not fit the record; None where the server shows none.

    A stopped replay's requests are aborted, which servers count as they like: it is not compared.
    """
    requests = _whole(replay, "server_requests")
    tokens = _whole(replay, "server_generation_tokens")
    if requests is None and tokens is None:
        return None
    faults = [] if replay.stopped else [*_requests(replay, requests), *_tokens(replay, tokens)]
    mismatch = "; ".join(faults) or None
    return ServerSide(requests, tokens, _whole(replay, "server_prompt_tokens"), mismatch)


def _requests(replay: Replay, counted: int | None) -> list[str]:
    ended = int(np.isin(replay.status, (Status.OK, Status.WRONG_LENGTH)).sum())
    sent = int(np.count_nonzero(~np.isnan(replay.sent_s)))
    if counted is None or ended <= counted <= sent:
        return []
    who = "does somebody else use it?" if counted > sent else "does it count for only one of several?"
    return [f"the server finished {counted:,} requests and the client {ended:,} of {sent:,}: {who}"]


def _tokens(replay: Replay, counted: int | None) -> list[str]:
    """Answers in full are counted exactly; one that failed may have got any number of its tokens."""
    full = replay.ok
    least = int(replay.tokens[full].sum(dtype=np.int64))
    most = least + int(np.maximum(replay.output_tokens, replay.tokens)[~full].sum(dtype=np.int64))
    if counted is None or (1 - _ROOM) * least <= counted <= (1 + _ROOM) * most:
        return []
    how = "chunks" if replay.tokens_estimated else "tokens"
    return [f"the server generated {counted:,} tokens and the client got {least:,} {how}"]


def _whole(replay: Replay, name: str) -> int | None:
    value = replay.counters.get(name)
    return None if value is None else round(value)
